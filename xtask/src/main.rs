//! The project's tasks, one file each: `cargo xtask help` lists them.

mod attack;
mod bench;
mod browser;
mod command;
mod cycles;
mod demo;
mod dist;
mod docs;
mod ebpf;
mod exports;
mod field;
mod fuzz;
mod html;
mod imports;
mod lint;
mod oracle;
mod pythons;
mod release;
mod roots;
mod setup;
mod soak;
mod sources;
mod stress;
mod targets;
mod test;
mod torch;
mod undisturbed;
mod verdicts;
mod verifier;
mod vm;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Tasks of the project: build, test, measure"
)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build memtrace quickly and run `memtrace demo` (as root)
    Demo {
        /// The example's language: python or c
        example: Option<String>,
    },
    /// Run every test, end-to-end ones included (as root)
    Test {
        /// Run only the tests whose name contains this
        filter: Option<String>,
        /// Run only unit tests, which need no root
        #[arg(long)]
        unit: bool,
    },
    /// Check formatting, lints and the repository's own rules
    Lint,
    /// Build the documentation as a book, into target/book
    Book,
    /// Build what users install: static binary, tarball, Debian package, wheel, container image
    Dist(dist::Options),
    /// Publish a release on GitHub, from what `dist` builds
    Release(release::Options),
    /// Install the packages needed by the tests (Debian)
    Setup {
        /// Also install the toolchain that rebuilds the kernel side
        #[arg(long)]
        ebpf: bool,
    },
    /// Rebuild the kernel side's object after a change to its sources
    BuildEbpf {
        /// Install bpf-linker into target/tools when it is missing
        #[arg(long)]
        install: bool,
    },
    /// Check that the committed object matches its sources
    CheckEbpf,
    /// Measure the verifier's work for each program, and the memory of the maps (as root)
    Verifier {
        /// Also measure on these kernels, in virtual machines: see `vm`; a path is a kernel's image
        kernels: Vec<String>,
    },
    /// Run part of the end-to-end tests on other kernels, in virtual machines (as root)
    Vm(vm::Options),
    /// Trace large programs under load and verify their stacks (slow; as root)
    Oracle(oracle::Options),
    /// Record programs that grow in known ways and count right verdicts (slow; as root)
    Verdicts(verdicts::Options),
    /// Record programs as users write them, judge the first screens, and compare rates (slow; as root)
    Field(field::Options),
    /// Use the pages of `memtrace html` in a browser (slow; as root, unless recordings are given)
    TestHtml(html::Options),
    /// Read exports with `go tool pprof` and the protocols of Perfetto and OpenTelemetry (as root)
    TestExports(exports::Options),
    /// Test Python frames and holders on the interpreters of other Debian releases (slow; as root)
    TestPythons(pythons::Options),
    /// Trace real PyTorch and compare its figures with memtrace's (slow; as root)
    TestTorch(torch::Options),
    /// Run `test-torch` on a GPU, and everything else that needs one (as root)
    TestGpu(torch::GpuOptions),
    /// Record many short processes for a long time and judge memory, file and report (slow; as root)
    Soak(soak::Options),
    /// Attack memtrace as a tenant, the author of a recording and a server would (as root)
    Attack {
        /// Only attacks whose description or test contains this
        filter: Option<String>,
    },
    /// Set and remove probes on all sides for a long time, on kernels in virtual machines (slow; as root)
    Stress(stress::Options),
    /// Run test suites of other projects untraced and traced, and compare each result (slow; as root)
    Undisturbed(undisturbed::Options),
    /// Run the readers of what others wrote on millions of slightly damaged inputs (slow)
    Fuzz(fuzz::Options),
    /// Measure the cost to the target and to the collector (as root)
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Demo { example } => demo::run(example.as_deref()),
        Task::Test { filter, unit } => test::run(filter.as_deref(), unit),
        Task::Lint => lint::run(),
        Task::Book => docs::book(),
        Task::Dist(options) => dist::run(&options),
        Task::Release(options) => release::run(&options),
        Task::Setup { ebpf } => setup::run(ebpf),
        Task::BuildEbpf { install } => ebpf::build(install),
        Task::CheckEbpf => ebpf::check(),
        Task::Verifier { kernels } => verifier::run(&kernels),
        Task::Vm(options) => vm::run(&options),
        Task::Oracle(options) => oracle::run(&options),
        Task::Verdicts(options) => verdicts::run_all(&options),
        Task::Field(options) => field::run_all(&options),
        Task::TestHtml(options) => html::run(&options),
        Task::TestExports(options) => exports::run(&options),
        Task::TestPythons(options) => pythons::run(&options),
        Task::TestTorch(options) => torch::run(&options),
        Task::TestGpu(options) => torch::run_on_gpu(&options),
        Task::Soak(options) => soak::run(&options),
        Task::Attack { filter } => attack::run(filter.as_deref()),
        Task::Stress(options) => stress::run(&options),
        Task::Undisturbed(options) => undisturbed::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Bench(options) => bench::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
