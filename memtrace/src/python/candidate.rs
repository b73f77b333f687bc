//! A file that holds a CPython interpreter, and where in it the evaluation loop is.

/// A file that holds an interpreter. Addresses as the file means them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// 11 for Python 3.11.
    pub minor: u32,
    /// `_PyRuntime`.
    pub runtime: u64,
    /// Code of `_PyEval_EvalFrameDefault`, and of the part that the compiler moved away (or an
    /// empty range): start and end.
    pub eval: [[u64; 2]; 2],
    /// Functions that the loop calls for the instructions, in an interpreter built with tail calls
    /// (3.14). Native frames there belong to the loop and mean nothing to the user.
    pub handlers: Option<[u64; 2]>,
    /// Start of the function that frees code objects.
    pub code_dealloc: Option<u64>,
    /// Its description of its own layout, which it has since 3.13; empty if there is none.
    pub description: Vec<u8>,
}
