/* A module for Python that encodes frames.
 * The fault: `encode` takes a reference to its result and forgets it.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static int leaks;

static PyObject *configure(PyObject *module, PyObject *arguments)
{
    (void)module;
    if (!PyArg_ParseTuple(arguments, "p", &leaks))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *encode(PyObject *module, PyObject *arguments)
{
    (void)module;
    const char *frame;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(arguments, "y#", &frame, &length))
        return NULL;
    PyObject *encoded = PyBytes_FromStringAndSize(NULL, length / 4); /* allocates */
    if (!encoded)
        return NULL;
    char *bytes = PyBytes_AS_STRING(encoded);
    for (Py_ssize_t i = 0; i < length / 4; i++)
        bytes[i] = frame[4 * i] ^ frame[4 * i + 1];
    if (leaks) /* the fault */
        Py_INCREF(encoded);
    return encoded;
}

static PyMethodDef methods[] = {
    {"configure", configure, METH_VARARGS, "Whether it leaks."},
    {"encode", encode, METH_VARARGS, "A quarter of the frame."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "extension", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_extension(void)
{
    return PyModule_Create(&module);
}
