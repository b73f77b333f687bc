//! Files of a tenant's process that would take root's memory or time: the recording has its figures, memtrace ends at
//! once, and it and its helpers stay below 512 MiB.

use flate2::{Compression, write::ZlibEncoder};
use memtrace_tests::{
    Fixture,
    control_group::ControlGroup,
    record::{self, BEGUN},
    report::Report,
    running::Running,
    targets,
};
use std::{
    ffi::CString,
    fs::{self, OpenOptions},
    io::{BufWriter, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

const TENANT: u32 = 2001;

/// Of memtrace and its helpers together, bytes.
const MEMORY: u64 = 512 << 20;

/// The deadline of a recording of one second, on a busy machine. A wait for a lease, for the kernel's log or for all names
/// takes longer.
const DEADLINE: Duration = Duration::from_secs(20);

/// Input with which named.c allocates once.
const ALLOCATE: &str = "1\n";

/// A copy of an ELF file (64 bits), with other sections.
struct Elf(Vec<u8>);

impl Elf {
    fn number<const N: usize>(&self, at: usize) -> usize {
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(&self.0[at..at + N]);
        usize::try_from(u64::from_le_bytes(bytes)).expect("64 bits")
    }

    /// Where the header of a section is.
    fn header(&self, name: &str) -> usize {
        let (headers, count, names) = (
            self.number::<8>(0x28),
            self.number::<2>(0x3c),
            self.number::<2>(0x3e),
        );
        let strings = self.number::<8>(headers + names * 64 + 0x18);
        let of = |index| headers + index * 64;
        let is_named = |header: &usize| {
            let start = strings + self.number::<4>(*header);
            self.0[start..].starts_with(name.as_bytes()) && self.0[start + name.len()] == 0
        };
        (0..count).map(of).find(is_named).expect("a section")
    }

    /// Gives a section other content, and these flags.
    fn replace(&mut self, name: &str, flags: u64, content: &[u8]) {
        let header = self.header(name);
        let offset = self.0.len() as u64;
        self.0[header + 0x8..header + 0x10].copy_from_slice(&flags.to_le_bytes());
        self.0[header + 0x18..header + 0x20].copy_from_slice(&offset.to_le_bytes());
        let size = content.len() as u64;
        self.0[header + 0x20..header + 0x28].copy_from_slice(&size.to_le_bytes());
        self.0.extend_from_slice(content);
    }
}

/// A program of the tenant's, in a folder of its own.
fn own(fixture: &Fixture, content: &[u8]) -> PathBuf {
    let program = fixture.path("program");
    fs::write(&program, content).expect("a file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("own file");
    program
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.uid(TENANT).gid(TENANT);
    command
}

/// Records a process for one second, in which it gets this input.
fn recorded(fixture: &Fixture, target: &mut Running, input: &str) -> Report {
    let group = ControlGroup::limited(&format!("memtrace-bomb-{}", target.pid()), MEMORY);
    let file = fixture.path("x.mtr");
    let pid = target.pid().to_string();
    let mut command = record::command(["record", "-d", "1s", "-p", &pid, "-o"]);
    command.arg(&file);
    let record = Running::start(&mut group.command(&command));
    record.await_stderr(BEGUN);
    target.send(input);
    record.wait_within(DEADLINE).expect_code(0);
    target.expect_alive();
    assert_eq!(group.kills(), 0, "more than 512 MiB");
    record::report(&file)
}

/// Records a program that allocates 1001 bytes when it gets input.
fn records(fixture: &Fixture, program: &Path) {
    let mut target = Running::start(&mut command(program));
    target.await_stdout("ready");
    let report = recorded(fixture, &mut target, ALLOCATE);
    let heap = report.total(target.pid(), "heap");
    assert_eq!((heap.alloc_count, heap.alloc_bytes), (1, 1001));
}

fn elf(flags: &[&str]) -> Elf {
    let program = targets::build("gcc", flags, &["named.c"], &[]);
    Elf(fs::read(program).expect("just built"))
}

#[test]
fn strings_of_debug_information_that_unpack_to_a_gibibyte() {
    const COMPRESSED: u64 = 0x800; // SHF_COMPRESSED
    const SIZE: usize = 1 << 30;
    let mut elf = elf(&["-O1", "-g"]);
    let mut content = Vec::new();
    // Elf64_Chdr: ELFCOMPRESS_ZLIB, size, alignment.
    content.extend_from_slice(&1_u64.to_le_bytes());
    content.extend_from_slice(&(SIZE as u64).to_le_bytes());
    content.extend_from_slice(&1_u64.to_le_bytes());
    let mut encoder = ZlibEncoder::new(content, Compression::fast());
    let zeros = vec![0; 1 << 20];
    for _ in 0..SIZE / zeros.len() {
        encoder.write_all(&zeros).expect("memory");
    }
    let content = encoder.finish().expect("memory");
    for section in [".debug_str", ".debug_line", ".debug_info"] {
        elf.replace(section, COMPRESSED, &content);
    }
    let fixture = Fixture::new();
    records(&fixture, &own(&fixture, &elf.0));
}

#[test]
fn a_section_that_claims_to_unpack_to_four_gibibytes() {
    let mut elf = elf(&["-O1", "-g", "-gz=zlib"]);
    let sections: Vec<_> = [".debug_str", ".debug_line", ".debug_info"]
        .map(|name| elf.number::<8>(elf.header(name) + 0x18))
        .into();
    for content in sections {
        elf.0[content + 8..content + 16].copy_from_slice(&0xffff_0000_u64.to_le_bytes());
    }
    let fixture = Fixture::new();
    records(&fixture, &own(&fixture, &elf.0));
}

#[test]
fn eight_million_symbols() {
    let mut elf = elf(&["-O1"]);
    let mut symbols = vec![0; 24];
    for address in 0..8_000_000_u64 {
        // Elf64_Sym: name, STT_FUNC of STB_GLOBAL, section, value, size.
        symbols.extend_from_slice(&1_u32.to_le_bytes());
        symbols.extend_from_slice(&[0x12, 0, 1, 0]);
        symbols.extend_from_slice(&address.to_le_bytes());
        symbols.extend_from_slice(&1_u64.to_le_bytes());
    }
    elf.replace(".symtab", 0, &symbols);
    let fixture = Fixture::new();
    records(&fixture, &own(&fixture, &elf.0));
}

/// Each pair is of two of the one before: the name of the last takes 2^40 words.
#[test]
fn a_name_that_demangles_to_terabytes() {
    let mut name = "_Z10site_firstSt4pairIiiE".to_owned();
    for last in ('0'..='9').chain('A'..='Z') {
        name += &format!("S_IS{last}_S{last}_E");
    }
    let fixture = Fixture::new();
    let source = fixture.path("nested.c");
    let program = fs::read_to_string(targets::source("named.c")).expect("a source");
    let named = format!("static void site_first(void) __asm__(\"{name}\");\nint main(void) {{");
    fs::write(&source, program.replace("int main(void) {", &named)).expect("a file");
    let program = fixture.path("nested");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-o"]).args([&program, &source]);
    assert!(compiler.status().expect("gcc").success());
    assert!(
        fs::read(&program)
            .expect("a file")
            .windows(name.len())
            .any(|part| part == name.as_bytes())
    );
    records(&fixture, &program);
}

#[test]
fn unwind_information_with_eight_million_rows() {
    let fixture = Fixture::new();
    let (rows, code) = (fixture.path("rows"), fixture.path("rows.s"));
    // DW_CFA_advance_loc 1, DW_CFA_def_cfa_offset 16; the same and 24.
    let pair = [0x41, 0x0e, 0x10, 0x41, 0x0e, 0x18];
    fs::write(&rows, pair.repeat(4_000_000)).expect("a file");
    let assembly = format!(
        ".globl huge\n.text\nhuge:\n.fill 8000001, 1, 0x90\nhuge_end:\n\
         .section .eh_frame,\"a\",@progbits\n\
         cie: .long cie_end - . - 4\n.long 0\n.byte 1\n.asciz \"\"\n.uleb128 1\n.sleb128 -8\n.byte 16\n\
         .byte 0x0c, 7, 8, 0x90, 1\n.balign 8\ncie_end:\n\
         fde: .long fde_end - . - 4\n.long . - cie\n.quad huge, huge_end - huge\n.incbin {:?}\n.balign 8\nfde_end:\n\
         .section .note.GNU-stack,\"\",@progbits\n",
        rows.display()
    );
    fs::write(&code, assembly).expect("a file");
    let program = fixture.path("program");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-no-pie", "-o"]).arg(&program);
    compiler.arg(targets::source("named.c")).arg(&code);
    assert!(compiler.status().expect("gcc").success());
    records(&fixture, &program);
}

/// The target's map of generated code, which the test removes.
struct PerfMap(PathBuf);

impl Drop for PerfMap {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A process with generated code that a map names.
fn generated() -> (Running, PerfMap) {
    let program = targets::program("generated.c");
    let target = Running::start(command(&program).arg("executable"));
    target.await_stdout("ready");
    let map = PerfMap(format!("/tmp/perf-{}.map", target.pid()).into());
    (target, map)
}

#[test]
fn a_map_of_generated_code_of_250_megabytes() {
    let fixture = Fixture::new();
    let (mut target, map) = generated();
    let file = OpenOptions::new().append(true).open(&map.0).expect("a map");
    let mut file = BufWriter::new(file);
    for address in 0..5_000_000_u64 {
        let line = format!(
            "{:x} 8 a_function_with_a_long_name_{address:08}\n",
            0x1000 + address * 8
        );
        file.write_all(line.as_bytes()).expect("room in /tmp");
    }
    file.flush().expect("room in /tmp");
    assert!(recorded(&fixture, &mut target, "").received > 0);
}

/// Python code that holds a write lease on a file until it is killed.
fn lease(file: &Path) -> Running {
    let code = format!(
        "import fcntl, signal\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\n\
         file = open({:?}, 'r+')\nfcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
         print('leased', flush=True)\ninput()",
        file.display()
    );
    let holder = Running::start(command("/usr/bin/python3".as_ref()).args(["-c", &code]));
    holder.await_stdout("leased");
    holder
}

#[test]
fn a_lease_on_a_map_of_generated_code() {
    let fixture = Fixture::new();
    let (mut target, map) = generated();
    let holder = lease(&map.0);
    assert!(recorded(&fixture, &mut target, "").received > 0);
    drop(holder);
}

/// A program whose debug information is in a file beside it.
fn linked_to(fixture: &Fixture) -> (PathBuf, PathBuf) {
    let program = own(fixture, &elf(&["-O1", "-g"]).0);
    let file = program.with_extension("debug");
    let run = |command: &mut Command| assert!(command.status().expect("binutils").success());
    run(Command::new("objcopy")
        .arg("--only-keep-debug")
        .args([&program, &file]));
    run(Command::new("objcopy")
        .arg("--strip-all")
        .arg("--add-gnu-debuglink")
        .args([&file, &program]));
    chown(&file, Some(TENANT), Some(TENANT)).expect("root may");
    (program, file)
}

#[test]
fn a_lease_on_a_file_of_debug_information() {
    let fixture = Fixture::new();
    let (program, file) = linked_to(&fixture);
    let holder = lease(&file);
    records(&fixture, &program);
    drop(holder);
}

#[test]
fn a_fifo_as_a_file_of_debug_information() {
    let fixture = Fixture::new();
    let (program, file) = linked_to(&fixture);
    fs::remove_file(&file).expect("own file");
    let name = CString::new(file.as_os_str().as_bytes()).expect("no zero");
    // SAFETY: the name lives.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o666) }, 0);
    records(&fixture, &program);
}

#[test]
fn the_kernels_log_as_a_file_of_debug_information() {
    let fixture = Fixture::new();
    let (program, file) = linked_to(&fixture);
    let script = "mount --bind /proc/kmsg \"$1\" && exec \"$0\"";
    let mut shell = command("unshare".as_ref());
    shell
        .args(["-Urm", "sh", "-c", script])
        .args([&program, &file]);
    let mut target = Running::start(&mut shell);
    target.await_stdout("ready");
    let report = recorded(&fixture, &mut target, ALLOCATE);
    assert_eq!(report.total(target.pid(), "heap").alloc_bytes, 1001);
}
