//! `cargo xtask attack`: attacks on memtrace by a tenant of the machine, by the author of a recording and by a server,
//! and the rule that each must meet. Every attack is an end-to-end test; this is their list.

use crate::{command, vm};
use anyhow::{Result, bail};
use std::{collections::BTreeSet, process::Command};

/// An attack, the rule that holds against it, and its test: file of `tests/e2e/`, function.
type Row = (&'static str, &'static str, &'static str, &'static str);

const ATTACKS: &[Row] = &[
    (
        "package's INSTALLER is a link to a 0600 file of root's",
        "not read",
        "tenant",
        "files_of_others_are_not_read_for_a_tenant",
    ),
    (
        "INSTALLER is a hard link to a 0600 file of root's",
        "not read",
        "tenant",
        "files_of_others_are_not_read_for_a_tenant",
    ),
    (
        "INSTALLER leads through /proc/self/root",
        "not followed",
        "tenant",
        "files_of_others_are_not_read_for_a_tenant",
    ),
    (
        "INSTALLER is a file of /proc",
        "not read",
        "tenant",
        "files_of_others_are_not_read_for_a_tenant",
    ),
    (
        "dist-info is a link to a 0700 folder of root's",
        "not entered",
        "tenant",
        "files_of_others_are_not_read_for_a_tenant",
    ),
    (
        "INSTALLER is a FIFO",
        "not opened",
        "tenant",
        "files_of_others_are_not_read_for_a_tenant",
    ),
    (
        "INSTALLER is under a write lease",
        "not waited for",
        "tenant",
        "a_lease_is_not_waited_for",
    ),
    (
        "INSTALLER is on a FUSE file system that never answers",
        "not waited for",
        "tenant",
        "a_file_system_that_does_not_answer_is_not_waited_for",
    ),
    (
        "a mapped file is on an overlay of such a file system, in a user namespace",
        "not waited for",
        "tenant",
        "a_users_overlay_of_a_file_system_that_cannot_be_read_is_not_waited_for",
    ),
    (
        "64,000 mappings of a file with a path of almost 4 KiB (247 MB of text)",
        "bounded, refused with its reason",
        "tenant",
        "mappings_of_any_size_do_not_take_the_memory_of_memtrace",
    ),
    (
        "an execve does not end, because a tracer keeps a thread at its exit",
        "not waited for",
        "tenant",
        "a_program_whose_execve_does_not_end_is_not_waited_for",
    ),
    (
        "a mapped file is on a FUSE file system that answers opens but not reads",
        "not waited for",
        "tenant",
        "a_mapped_file_that_cannot_be_read_is_not_waited_for",
    ),
    (
        "the loader's list of libraries leads into such a file",
        "not waited for",
        "tenant",
        "a_list_of_libraries_in_a_file_that_cannot_be_read_is_not_waited_for",
    ),
    (
        "root's HOME is a tenant's, whose .cache/memtrace is a link",
        "nothing is written",
        "tenant",
        "root_caches_nothing_in_a_tenants_home",
    ),
    (
        "only some of the named capabilities",
        "the missing one is named",
        "tenant",
        "the_named_capabilities_are_enough_and_a_missing_one_is_named",
    ),
    (
        "the process that reads symbols is killed",
        "other names stay, the recording is complete",
        "names",
        "names_survive_the_process_that_reads_them",
    ),
    (
        "2,000 forks at once",
        "all are traced",
        "forks",
        "a_storm_of_forks_is_recorded_in_full",
    ),
    (
        "very many executable mappings",
        "the program goes on, the count is exact",
        "forks",
        "very_many_executable_mappings_do_not_stop_a_program",
    ),
    (
        "a name of a program that begins with =",
        "no formula in CSV",
        "tenant",
        "no_name_of_a_tenants_is_a_formula_or_steers_a_terminal",
    ),
    (
        "a name of a program with U+009B and U+202E",
        "escaped in every output",
        "tenant",
        "no_name_of_a_tenants_is_a_formula_or_steers_a_terminal",
    ),
    (
        "the process that reads symbols is stopped",
        "a signal ends memtrace, the recording is kept",
        "names",
        "a_signal_ends_a_recording_whose_names_do_not_come",
    ),
    (
        "a debuginfod server never answers",
        "a signal ends memtrace, the recording is kept",
        "names",
        "a_signal_ends_a_recording_whose_server_does_not_answer",
    ),
    (
        "debug sections that unpack to 1 GiB each",
        "< 512 MiB",
        "bombs",
        "strings_of_debug_information_that_unpack_to_a_gibibyte",
    ),
    (
        "debug sections that claim 4 GiB each",
        "< 512 MiB",
        "bombs",
        "a_section_that_claims_to_unpack_to_four_gibibytes",
    ),
    (
        "8,000,000 symbols",
        "< 512 MiB",
        "bombs",
        "eight_million_symbols",
    ),
    (
        "a C++ name that demangles to terabytes",
        "< 512 MiB, < 20 s",
        "bombs",
        "a_name_that_demangles_to_terabytes",
    ),
    (
        "programs and libraries with a few wrong bytes",
        "< 512 MiB, other counts are exact",
        "mutants",
        "mutants_of_a_program_are_recorded",
    ),
    (
        "8,000,000 rows of .eh_frame",
        "< 512 MiB",
        "bombs",
        "unwind_information_with_eight_million_rows",
    ),
    (
        "a perf map of 250 MB",
        "< 512 MiB",
        "bombs",
        "a_map_of_generated_code_of_250_megabytes",
    ),
    (
        "a perf map under a write lease",
        "not waited for",
        "bombs",
        "a_lease_on_a_map_of_generated_code",
    ),
    (
        "a .gnu_debuglink file under a write lease",
        "not waited for",
        "bombs",
        "a_lease_on_a_file_of_debug_information",
    ),
    (
        "a .gnu_debuglink file that is a FIFO",
        "not opened",
        "bombs",
        "a_fifo_as_a_file_of_debug_information",
    ),
    (
        "a .gnu_debuglink file that is /proc/kmsg, mounted",
        "not read",
        "bombs",
        "the_kernels_log_as_a_file_of_debug_information",
    ),
    (
        "a model's suppressions=/etc/shadow",
        "refused",
        "mcp",
        "answers_are_those_of_the_other_commands",
    ),
    (
        "memtrace is killed",
        "at most the last second is missing",
        "output",
        "a_kill_costs_at_most_the_last_second",
    ),
    (
        "the recording is renamed while it is written",
        "complete",
        "output",
        "a_renamed_recording_is_complete",
    ),
    (
        "the recording is removed while it is written",
        "written again",
        "output",
        "a_removed_recording_is_written_again",
    ),
    (
        "a link to root's file takes the name of the recording",
        "not written",
        "output",
        "nothing_that_took_the_name_of_a_recording_is_written",
    ),
    (
        "ulimit -f 1000",
        "an error, the recording is readable",
        "output",
        "a_limit_on_files_ends_the_recording_with_a_line",
    ),
    (
        "ulimit -s 64",
        "complete",
        "output",
        "a_small_stack_is_enough",
    ),
    (
        "the disk fills",
        "an error, the recording is readable",
        "full_disk",
        "a_disk_that_fills",
    ),
    (
        "the screen of `top` is killed",
        "no breakpoint is left",
        "top",
        "a_closed_terminal_and_a_kill_end_the_recorder",
    ),
    (
        "another tool probes malloc in a way that excludes others",
        "the counts are exact, the tool is named",
        "taken",
        "functions_that_another_tracer_probes_are_counted",
    ),
    (
        "the same with a semaphore in the program's file",
        "the function is left out, the tool is named",
        "taken",
        "functions_that_another_tracer_keeps_are_left_out",
    ),
    (
        "memtrace is killed in a storm of forks",
        "nobody stays stopped",
        "killed",
        "the_collector_in_a_storm",
    ),
    (
        "the holder is killed in a storm of forks",
        "nobody stays stopped",
        "killed",
        "the_pauser_in_a_storm",
    ),
    (
        "memtrace is stopped",
        "nobody waits for it",
        "killed",
        "nothing_waits_for_a_stopped_collector",
    ),
    (
        "a program that checks itself for leaks (LSan)",
        "its result is that without memtrace",
        "undisturbed",
        "leak_checked",
    ),
    (
        "a recording with an endless view in place of a table",
        "refused, < 10 s, < 512 MiB",
        "hostile",
        "every_command_answers_or_refuses_in_time",
    ),
    (
        "a recording with a virtual table, a trigger or a generated column",
        "refused, nothing is run",
        "hostile",
        "every_command_answers_or_refuses_in_time",
    ),
    (
        "a recording with 10,000 tables",
        "refused, < 10 s",
        "hostile",
        "every_command_answers_or_refuses_in_time",
    ),
    (
        "a recording of 100,000 processes",
        "< 10 s, < 512 MiB",
        "hostile",
        "every_command_answers_or_refuses_in_time",
    ),
    (
        "a recording with names of 5 MB",
        "< 512 MiB",
        "hostile",
        "every_command_answers_or_refuses_in_time",
    ),
    (
        "a recording with one long name in 100,000 frames",
        "< 512 MiB",
        "hostile",
        "every_command_answers_or_refuses_in_time",
    ),
    (
        "a recording with a stack a million deep",
        "refused, < 10 s",
        "hostile",
        "every_command_answers_or_refuses_in_time",
    ),
    (
        "a recording with 50,000 stacks of 2,000 frames",
        "< 10 s, < 512 MiB",
        "hostile",
        "every_command_answers_or_refuses_in_time",
    ),
    (
        "a recording with births of 20 MB",
        "< 512 MiB",
        "hostile",
        "every_command_answers_or_refuses_in_time",
    ),
    (
        "a recording whose figures add up to 2^66 bytes",
        "refused, no overflow",
        "hostile",
        "every_command_answers_or_refuses_in_time",
    ),
    (
        "a recording with JSON a million deep",
        "refused",
        "hostile",
        "every_command_answers_or_refuses_in_time",
    ),
    (
        "a recording whose pages are each other's children",
        "< 10 s",
        "hostile",
        "every_command_answers_or_refuses_in_time",
    ),
    (
        "a recording whose log has another first page",
        "refused",
        "hostile",
        "every_command_answers_or_refuses_in_time",
    ),
    (
        "a recording with sequences for the terminal",
        "escaped",
        "hostile",
        "every_command_answers_or_refuses_in_time",
    ),
    (
        "a recording with text in place of numbers, or not UTF-8",
        "refused",
        "hostile",
        "every_command_answers_or_refuses_in_time",
    ),
    (
        "a recording that is a FIFO, a folder or a device",
        "refused, not waited for",
        "hostile",
        "what_is_no_file_is_refused",
    ),
    (
        "a recording with a hole of 1 TiB",
        "< 10 s, < 512 MiB",
        "hostile",
        "a_hole_of_a_tebibyte_is_not_read",
    ),
    (
        "a FIFO at x.mtr-journal, -wal or -shm",
        "not opened",
        "hostile",
        "nothing_beside_a_recording_is_followed",
    ),
    (
        "a link to /etc/shadow at x.mtr-journal, -wal or -shm",
        "not followed",
        "hostile",
        "nothing_beside_a_recording_is_followed",
    ),
    (
        "a foreign file at x.mtr-journal, -wal or -shm",
        "not read",
        "hostile",
        "nothing_beside_a_recording_is_followed",
    ),
    (
        "the valid journal of another database at x.mtr-journal",
        "not followed",
        "hostile",
        "nothing_beside_a_recording_is_followed",
    ),
    (
        "a FIFO, a link or another user's journal beside a v10 recording",
        "refused by name",
        "hostile",
        "an_older_recording_with_a_planted_journal_is_refused",
    ),
];

/// `cargo xtask attack`.
///
/// # Errors
/// When not root, or an attack succeeds.
pub(crate) fn run(filter: Option<&str>) -> Result<()> {
    command::need_root("the attacks")?;
    command::build_workspace()?;
    let program = vm::test_program(&vm::X86_64)?;
    let chosen: Vec<_> = ATTACKS
        .iter()
        .filter(|(attack, .., test)| {
            filter.is_none_or(|part| attack.contains(part) || test.contains(part))
        })
        .collect();
    let mut held = BTreeSet::new();
    let files: BTreeSet<_> = chosen.iter().map(|(_, _, file, _)| *file).collect();
    for file in files {
        let tests: BTreeSet<String> = chosen
            .iter()
            .filter(|(_, _, of, _)| *of == file)
            .map(|(.., test)| format!("{file}::{test}"))
            .collect();
        let output = Command::new(&program)
            .args(["--exact", "--test-threads=1"])
            .args(&tests)
            .env("MEMTRACE_EVERY_COMMAND", "1")
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            eprint!("{text}");
        }
        let passed = |test: &String| text.contains(&format!("test {test} ... ok"));
        held.extend(tests.into_iter().filter(passed));
    }
    let mut broken = Vec::new();
    for (attack, rule, file, test) in &chosen {
        let holds = held.contains(&format!("{file}::{test}"));
        let mark = if holds { "held" } else { "BROKEN" };
        println!("{mark:<7} {attack:<64} {rule}");
        if !holds {
            broken.push(*attack);
        }
    }
    let count = chosen.len() - broken.len();
    println!("{count} of {} attacks held", chosen.len());
    if broken.is_empty() {
        return Ok(());
    }
    bail!("broken: {}", broken.join("; "))
}
