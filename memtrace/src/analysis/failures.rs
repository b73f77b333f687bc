//! Failed allocations of device memory as a program sees them: one failure each, even if lower layers failed
//! too and a caching allocator retried.

use crate::{
    event::{Layer, OUT_OF_MEMORY},
    frames::caching,
    ledger::FailureKey,
    recording::{FailureSnapshot, Stack, Stacks},
};

/// File name prefixes of the runtimes that call the driver.
const RUNTIMES: &[&str] = &["libcudart", "libamdhip64"];

/// Prefix of the names that NVIDIA gives the functions of a statically linked runtime.
const STATIC_RUNTIME: &str = "libcudart_static_";

/// Innermost frames searched for the caching allocator's retry.
const OWN_FRAMES: usize = 4;

/// The failure that another failure is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartOf {
    /// The same allocation failed in the layer above.
    Above,
    /// A caching allocator freed cached memory, and its retry succeeded.
    Met,
}

/// For each failure, the one that it is a part of; `None` if the program saw it.
pub(crate) fn parts(failures: &[FailureSnapshot], stacks: &Stacks) -> Vec<Option<PartOf>> {
    let parts = failures.iter();
    parts
        .map(|failure| part_of(failure, failures, stacks))
        .collect()
}

fn part_of(
    failure: &FailureSnapshot,
    failures: &[FailureSnapshot],
    stacks: &Stacks,
) -> Option<PartOf> {
    let key = &failure.key;
    let stack = stacks.get(key.stack);
    let caller = stack.frames().next()?;
    let leaf = caller.module_name()?;
    let fails = |layer: &dyn Fn(Layer) -> bool| {
        let mut all = failures.iter();
        all.any(|other| layer(other.key.layer) && is_beside(&other.key, key))
    };
    let function = caller.function.as_deref().unwrap_or_default();
    let by_runtime =
        RUNTIMES.iter().any(|file| leaf.starts_with(file)) || function.starts_with(STATIC_RUNTIME);
    if key.layer == Layer::CudaDriver && by_runtime {
        let above = fails(&|layer| matches!(layer, Layer::CudaRuntime | Layer::Hip));
        return above.then_some(PartOf::Above);
    }
    let cache = caching::layer_of_caller(leaf).filter(|layer| *layer != key.layer)?;
    if key.error == OUT_OF_MEMORY && fails(&|layer| layer == cache) {
        return Some(PartOf::Above);
    }
    (key.error == OUT_OF_MEMORY && asks_again(stack, cache)).then_some(PartOf::Met)
}

/// Whether both are of the same process, error and device. Lower layers may not know the device.
fn is_beside(one: &FailureKey, other: &FailureKey) -> bool {
    let is_device = one.device == other.device || other.device.is_none();
    one.process == other.process && is_device && one.error == other.error
}

/// Whether a retrying function of the caching allocator made the call. A frame without a name counts as one.
fn asks_again(stack: Stack, cache: Layer) -> bool {
    let part = caching::of_process(|layer| layer == cache).asks_again;
    let mut own = stack.frames().take(OWN_FRAMES);
    own.any(|frame| match &frame.function {
        Some(function) => function.contains(part),
        None => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::StackId,
        frames::{
            Frame,
            fixture::{native, python},
        },
        ledger::{Failure, ProcessId},
    };
    use memtrace_common::unwind::End;

    const C10: &str = "/v/libc10_cuda.so";
    const CUDART: &str = "/v/libcudart.so.13";
    const ALLOC: &str = "c10::cuda::Native::DeviceCachingAllocator::alloc_block(bool)";

    fn failed(layer: Layer, stack: u32) -> FailureSnapshot {
        FailureSnapshot {
            key: FailureKey {
                process: ProcessId(1),
                layer,
                device: Some(0),
                stack: StackId(stack),
                error: OUT_OF_MEMORY,
            },
            failure: Failure::default(),
        }
    }

    fn stacks(of: &[&[Frame]]) -> Stacks {
        let mut stacks = Stacks::default();
        for (number, frames) in (1..).zip(of) {
            let frames = frames.iter().cloned();
            stacks.put(StackId(number), End::Complete, None, frames);
        }
        stacks
    }

    #[test]
    fn a_failure_in_three_layers_and_twice_is_one() {
        let line = python("step", "/srv/train.py", 3);
        let stacks = stacks(&[
            &[
                native("cudaMalloc", CUDART),
                native(ALLOC, C10),
                line.clone(),
            ],
            &[native(ALLOC, C10), line.clone()],
            &[native("retry DeviceCachingAllocator", C10), line.clone()],
            &[native("malloc", C10), line],
        ]);
        let failures = [
            failed(Layer::CudaDriver, 1),
            failed(Layer::CudaRuntime, 2),
            failed(Layer::CudaRuntime, 3),
            failed(Layer::TorchCuda, 4),
        ];
        let above = Some(PartOf::Above);
        assert_eq!(parts(&failures, &stacks), [above, above, above, None]);
        // If the retry had succeeded, the program would have seen no failure.
        let met = Some(PartOf::Met);
        assert_eq!(parts(&failures[..3], &stacks), [above, met, met]);
        // The failure above is on another device.
        let mut elsewhere = failures.clone();
        elsewhere[3].key.device = Some(1);
        assert_eq!(parts(&elsewhere, &stacks)[1], met);
    }

    #[test]
    fn a_request_without_a_retry_fails() {
        let stacks = stacks(&[
            &[native("CudaMallocAsync::mallocAsync(void**)", C10)],
            &[native("my_buffer", "/srv/program")],
            &[native("cudaMalloc", CUDART)],
            &[native("libcudart_static_5382377d", "/srv/program")],
        ]);
        let failures = [
            failed(Layer::CudaRuntime, 1),
            failed(Layer::CudaDriver, 2),
            failed(Layer::CudaDriver, 3),
            failed(Layer::CudaDriver, 4),
        ];
        let above = Some(PartOf::Above);
        assert_eq!(parts(&failures, &stacks), [None, None, above, above]);
        assert_eq!(parts(&failures[2..], &stacks), [None, None]);
    }
}
