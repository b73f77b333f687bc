//! The end-to-end tests that run on other kernels: those whose feature depends on the kernel.

/// A test: file of `tests/e2e/`, function.
pub(super) type Test = (&'static str, &'static str);

/// Features, and the tests for each.
const FEATURES: [(&str, &[Test]); 15] = [
    (
        "exact counts",
        &[
            (
                "exact",
                "launched_with_every_function_thread_child_and_library",
            ),
            ("exact", "attached_while_it_waits"),
            ("exact", "cpp_operators_on_libc"),
            ("exact", "probes_attached_one_by_one"),
            (
                "exact",
                "processes_beside_one_another_with_probes_attached_one_by_one",
            ),
            ("exact", "threads_that_preempt_one_another"),
        ],
    ),
    (
        "stacks of C, C++",
        &[
            ("stacks", "gcc_without_frame_pointers"),
            ("stacks", "gcc_with_protected_branches"),
            ("stacks", "attached"),
        ],
    ),
    (
        "stacks of Python",
        &[
            ("python", "of_a_virtual_environment"),
            ("python", "of_a_running_program"),
        ],
    ),
    (
        "another unwinder",
        &[("verify", "another_unwinder_finds_the_same_stacks")],
    ),
    (
        "imports",
        &[
            ("imports", "an_import_is_one_frame"),
            ("imports", "an_import_is_whole_on_request"),
        ],
    ),
    (
        "exceptions",
        &[
            ("exact", "cpp_exceptions_pass"),
            ("allocators", "a_bad_alloc_passes_preloaded_operators"),
        ],
    ),
    (
        "fork, children",
        &[
            ("launch", "children_are_reported_with_their_parents"),
            ("launch", "forks_that_preempt_one_another"),
            (
                "python",
                "workers_of_a_running_master_have_the_stacks_of_those_before",
            ),
        ],
    ),
    (
        "exec",
        &[("launch", "exec_by_another_thread_than_the_leader")],
    ),
    (
        "dlopen",
        &[("stacks", "libraries_that_replace_one_another")],
    ),
    (
        "attach, detach",
        &[
            ("attach", "again_and_again_to_a_busy_multithreaded_program"),
            ("attach", "a_bystander_has_unmodified_code"),
            ("attach", "two_processes_in_one_recording"),
        ],
    ),
    (
        "--start-after",
        &[
            (
                "launch",
                "a_recording_that_begins_late_attaches_to_the_command",
            ),
            ("launch", "a_recording_begins_at_the_call_of_a_function"),
            ("launch", "a_recording_begins_at_a_call_or_line_of_python"),
        ],
    ),
    (
        "vm layer",
        &[
            ("vm", "map_fixed_middle"),
            ("vm", "unmap_several"),
            ("vm", "remap_part"),
            ("vm", "brk_up"),
            ("vm", "shared_segment"),
        ],
    ),
    (
        "devices, torch",
        &[
            ("devices", "every_function_is_counted_in_its_layer"),
            ("devices", "each_device_adds_up"),
        ],
    ),
    (
        "holders",
        &[
            ("holders", "native_holders_match_the_program"),
            ("holders", "paths_in_python_lead_to_the_object"),
            ("kept_by", "a_table_of_chains_is_one_container"),
        ],
    ),
    (
        "kill -9",
        &[
            ("killed", "attached_to_a_busy_program"),
            ("killed", "around_a_launched_program"),
            ("killed", "no_forked_child_stays_stopped"),
        ],
    ),
];

/// A part of the suite.
pub(super) struct Suite(Vec<(&'static str, Vec<Test>)>);

impl Suite {
    /// The tests whose feature, file or function contains this text; by default all.
    pub(super) fn of(filter: Option<&str>) -> Suite {
        let filter = filter.unwrap_or_default();
        let wanted = FEATURES.iter().map(|(feature, tests)| {
            let is_wanted = |(file, test): &&Test| {
                feature.contains(filter) || format!("{file}::{test}").contains(filter)
            };
            (*feature, tests.iter().filter(is_wanted).copied().collect())
        });
        Suite(
            wanted
                .filter(|(_, tests): &(_, Vec<Test>)| !tests.is_empty())
                .collect(),
        )
    }

    pub(super) fn features(&self) -> &[(&'static str, Vec<Test>)] {
        &self.0
    }

    pub(super) fn tests(&self) -> impl Iterator<Item = Test> {
        self.0.iter().flat_map(|(_, tests)| tests.iter().copied())
    }
}
