//! Graphs of PyTorch's autograd, seen by the functions that allocate them.

use crate::frames::Frame;

/// Functions of PyTorch that record an operation in a graph (torch/csrc/autograd/function.h and saved_variable.cpp). They do
/// not run under `torch.no_grad()`, nor in the backward pass.
const RECORD: &[&str] = &[
    "torch::autograd::collect_next_edges",
    "torch::autograd::detail::MakeNextFunctionList",
    "torch::autograd::SavedVariable::SavedVariable",
];

/// Whether a frame is of a function that records an operation.
pub(super) fn records_operation(frame: &Frame) -> bool {
    let function = frame.function.as_deref().unwrap_or_default();
    RECORD.iter().any(|record| function.contains(record))
}

/// Whether a frame is of PyTorch's own code.
pub(super) fn is_of_torch(frame: &Frame) -> bool {
    let function = frame.function.as_deref().unwrap_or_default();
    let mut namespaces = ["at::", "c10::", "torch::"].into_iter();
    namespaces.any(|of| function.starts_with(of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::native;

    #[test]
    fn only_what_records_operations_shows_a_graph() {
        let of = |function: &str| records_operation(&native(function, "/venv/libtorch_cpu.so"));
        assert!(of(
            "torch::autograd::detail::MakeNextFunctionList::operator()"
        ));
        assert!(of(
            "torch::autograd::SavedVariable::SavedVariable(at::Tensor const&, bool, bool)"
        ));
        assert!(!of(
            "torch::autograd::THPVariable_randn(_object*, _object*, _object*)"
        ));
        assert!(!of("torch::autograd::generated::AddmmBackward0::apply"));
    }
}
