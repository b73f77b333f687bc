//! Each place of names, with programs that have them nowhere else.

use super::*;
use std::io;

/// A stripped library and its debug file, both of [`INLINED_C`].
struct Split {
    dir: TempDir,
    library: PathBuf,
    debug: PathBuf,
    /// Address of `here`.
    here: u64,
}

const BUILD_ID: &str = "abcdef0123456789";

fn split() -> Split {
    let dir = TempDir::new().unwrap();
    let options = ["-g", "-Wl,--build-id=0xabcdef0123456789"];
    let library = compile(&dir, "gcc", "inlined.c", INLINED_C, &options);
    let here = address(&library, "here");
    let debug = dir.path().join("inlined.debug");
    let only_debug = Path::new("--only-keep-debug");
    run("objcopy", &[only_debug, &library, &debug]);
    run("strip", &[&library]);
    Split {
        dir,
        library,
        debug,
        here,
    }
}

impl Split {
    /// Names the debug file in the library.
    fn link(&self) {
        let option = PathBuf::from(format!("--add-gnu-debuglink={}", self.debug.display()));
        run("objcopy", &[&option, &self.library]);
    }

    /// Frames of `here` in a process with this root, which sees the library as `path`.
    fn look_up(&self, path: &Path, global: &Path, root: Option<&Path>, id: &str) -> Vec<Frame> {
        let mut symbolizer = Symbolizer::default();
        let places = Places::with_global(global);
        let file = File::open(&self.library).unwrap();
        let path = path.to_str().unwrap();
        let module = symbolizer.module_with(&places, path, file, Some(id.to_owned()), root);
        symbolizer.frames_at(module, self.here)
    }

    fn assert_lines(&self, frames: &[Frame]) {
        assert_inlined_chain(frames, &self.dir.path().join("inlined.c"));
    }

    fn place(&self, at: PathBuf) -> PathBuf {
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::rename(&self.debug, &at).unwrap();
        at
    }
}

#[test]
fn a_debug_file_is_found_by_build_id() {
    let split = split();
    let global = split.dir.path().join("debug");
    let folder = global.join(".build-id/ab");
    let at = split.place(folder.join("cdef0123456789.debug"));
    let look_up = |id| split.look_up(Path::new("/m"), &global, None, id);
    let found = look_up(BUILD_ID);
    split.assert_lines(&found);
    assert_eq!(found[0].build_id.as_deref(), Some(BUILD_ID));

    // A debug file whose build id does not match its name is not used.
    fs::rename(at, folder.join("00.debug")).unwrap();
    assert_eq!(names(&look_up("ab00")), [Some("physical")]);
    // A build id is not a path.
    assert_eq!(names(&look_up("ab/../ab")), [Some("physical")]);
}

#[test]
fn a_debug_file_is_found_in_the_processs_own_root() {
    let split = split();
    let root = split.dir.path().join("root");
    split.place(root.join("usr/lib/debug/.build-id/ab/cdef0123456789.debug"));
    let global = Path::new("/usr/lib/debug");
    let own = split.look_up(Path::new("/m"), global, Some(&root), BUILD_ID);
    split.assert_lines(&own);
    let without = split.look_up(Path::new("/m"), global, None, BUILD_ID);
    assert_eq!(names(&without), [Some("physical")]);
}

#[test]
fn a_debug_link_is_looked_up_as_the_process_would() {
    let split = split();
    split.link();
    let root = split.dir.path().join("root");
    let global = Path::new("/usr/lib/debug");
    let path = Path::new("/opt/lib/inlined.so");
    let look_up = |root| split.look_up(path, global, root, "00");
    assert_eq!(names(&look_up(Some(&root))), [Some("physical")]);
    let mut debug = split.debug.clone();
    for place in ["opt/lib", "opt/lib/.debug", "usr/lib/debug/opt/lib"] {
        let at = root.join(place).join("inlined.debug");
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::rename(&debug, &at).unwrap();
        split.assert_lines(&look_up(Some(&root)));
        assert_eq!(names(&look_up(None)), [Some("physical")], "{place}");
        debug = at;
    }
    // Someone else's file under the same name: its checksum reveals it.
    fs::copy(&split.library, &debug).unwrap();
    assert_eq!(names(&look_up(Some(&root))), [Some("physical")]);
}

#[test]
fn a_debug_link_is_followed_on_the_host() {
    let split = split();
    split.link();
    let global = split.dir.path().join("debug");
    let beside = split.look_up(&split.library, &global, None, "00");
    split.assert_lines(&beside);

    let dir = split.dir.path().strip_prefix("/").unwrap();
    split.place(global.join(dir).join("inlined.debug"));
    let below = split.look_up(&split.library, &global, None, "00");
    split.assert_lines(&below);
    let root = split.dir.path().join("other root");
    fs::create_dir(&root).unwrap();
    let of_container = split.look_up(&split.library, &global, Some(&root), "00");
    split.assert_lines(&of_container);
}

#[test]
fn compressed_debug_information_is_read() {
    for format in ["none", "zlib", "zstd"] {
        let dir = TempDir::new().unwrap();
        // Sections that would not shrink are left uncompressed.
        let others: String = (0..200)
            .map(|n| format!("int f{n}(int x) {{ return x * {n}; }}\n"))
            .collect();
        let source = format!("{INLINED_C}{others}");
        let library = compile(&dir, "gcc", "inlined.c", &source, &["-g"]);
        let compressed = dir.path().join("compressed.so");
        let option = format!("--compress-debug-sections={format}");
        run("objcopy", &[Path::new(&option), &library, &compressed]);
        let data = fs::read(&compressed).unwrap();
        let elf = object::File::parse(&*data).unwrap();
        let lines = elf.section_by_name(".debug_line").unwrap();
        let used = lines.compressed_file_range().unwrap().format;
        let expected = match format {
            "zlib" => object::CompressionFormat::Zlib,
            "zstd" => object::CompressionFormat::Zstandard,
            _ => object::CompressionFormat::None,
        };
        assert_eq!(used, expected);
        let found = frames(&compressed, file_offset(&compressed, "here"));
        assert_inlined_chain(&found, &dir.path().join("inlined.c"));
    }
}

/// A section's claim is patched: `ch_size` of Elf64_Chdr (System V gABI, chapter 4).
#[test]
fn debug_information_that_unpacks_to_more_than_it_may_is_not_tried() {
    let dir = TempDir::new().unwrap();
    let zeros = dir.path().join("zeros");
    File::create(&zeros).unwrap().set_len(64 << 20).unwrap();
    let library = compile(&dir, "gcc", "gap.c", GAP_C, &[]);
    let first = file_offset(&library, "first");
    let add = PathBuf::from(format!("--add-section=.debug_info={}", zeros.display()));
    run("objcopy", &[&add, &library]);
    let formats = ["zlib", "zstd"];
    let claims = [None, Some(1 << 10), Some(5 << 30)];
    for (format, claim) in formats
        .into_iter()
        .flat_map(|format| claims.map(|claim| (format, claim)))
    {
        let compressed = dir.path().join("compressed.so");
        let option = format!("--compress-debug-sections={format}");
        run("objcopy", &[Path::new(&option), &library, &compressed]);
        let mut data = fs::read(&compressed).unwrap();
        let elf = object::File::parse(&*data).unwrap();
        let section = elf.section_by_name(".debug_info").unwrap();
        let range = section.compressed_file_range().unwrap();
        assert_eq!(range.uncompressed_size, 64 << 20);
        assert!(range.compressed_size < 1 << 20, "{range:?}");
        if let Some(claim) = claim {
            // ch_type, ch_reserved, ch_size.
            let at = section.file_range().unwrap().0 as usize + 8;
            data[at..at + 8].copy_from_slice(&u64::to_le_bytes(claim));
            fs::write(&compressed, data).unwrap();
        }
        let file = File::open(&compressed).unwrap();
        let (mut symbolizer, text) = (Symbolizer::default(), "/in/process");
        let (module, _) = symbolizer.add(text, file, None, Detail::Full);
        // Symbols are packed apart from it.
        let found = symbolizer.frames(module, first);
        assert_eq!(names(&found), [Some("first")], "{format} {claim:?}");
        let sources = symbolizer.modules[0].sources.len();
        assert_eq!(
            sources,
            if claim.is_none() { 2 } else { 1 },
            "{format} {claim:?}"
        );
        let is_too_large = claim.is_some_and(|claim| claim > 1 << 30);
        assert_eq!(
            symbolizer.is_cut(module),
            is_too_large,
            "{format} {claim:?}"
        );
    }
}

/// [`GAP_C`] stripped, with `packed` as its `.gnu_debugdata`; addresses of `first` and `hidden`.
fn with_packed_symbols(dir: &TempDir, pack: impl Fn(&Path, &Path)) -> (PathBuf, [u64; 2]) {
    let library = compile(dir, "gcc", "gap.c", GAP_C, &[]);
    let addresses = ["first", "hidden"].map(|name| address(&library, name));
    let [symbols, packed] = ["symbols", "packed"].map(|name| dir.path().join(name));
    let only_debug = Path::new("--only-keep-debug");
    run("objcopy", &[only_debug, &library, &symbols]);
    // As in Fedora's packages: functions in `.dynsym` are left out.
    let keep = Path::new("--keep-symbol=hidden");
    run("objcopy", &[Path::new("-S"), keep, &symbols]);
    pack(&symbols, &packed);
    run("strip", &[&library]);
    let option = PathBuf::from(format!("--add-section=.gnu_debugdata={}", packed.display()));
    run("objcopy", &[&option, &library]);
    (library, addresses)
}

fn xz(input: &Path, output: &Path) {
    let mut encoder = xz2::read::XzEncoder::new(File::open(input).unwrap(), 6);
    io::copy(&mut encoder, &mut File::create(output).unwrap()).unwrap();
}

#[test]
fn packed_symbols_complement_dynamic_ones() {
    let dir = TempDir::new().unwrap();
    let (library, [first, hidden]) = with_packed_symbols(&dir, xz);
    let mut symbolizer = Symbolizer::default();
    let module = symbolizer.module("m", File::open(&library).unwrap(), None, None);
    assert_eq!(
        names(&symbolizer.frames_at(module, hidden)),
        [Some("hidden")]
    );
    assert_eq!(names(&symbolizer.frames_at(module, first)), [Some("first")]);
}

#[test]
fn packed_symbols_that_do_not_unpack_are_not_tried() {
    let bomb: fn(&Path, &Path) = |_, packed| {
        let zeros = io::Read::take(io::repeat(0), (256 << 20) + 1);
        let mut encoder = xz2::read::XzEncoder::new(zeros, 0);
        io::copy(&mut encoder, &mut File::create(packed).unwrap()).unwrap();
    };
    let damaged: fn(&Path, &Path) = |_, packed| fs::write(packed, "no xz stream").unwrap();
    for pack in [bomb, damaged] {
        let dir = TempDir::new().unwrap();
        let (library, [first, _]) = with_packed_symbols(&dir, pack);
        let mut symbolizer = Symbolizer::default();
        let module = symbolizer.module("m", File::open(&library).unwrap(), None, None);
        let found = symbolizer.frames_at(module, first);
        let why = "its symbols cannot be read";
        assert_eq!(words(&found[0]).as_deref(), Some(why));
    }
}

#[test]
fn split_debug_information_gives_functions_and_no_wrong_lines() {
    let dir = TempDir::new().unwrap();
    let options = ["-g", "-gsplit-dwarf"];
    let library = compile(&dir, "gcc", "inlined.c", INLINED_C, &options);
    let found = frames(&library, file_offset(&library, "here"));
    assert_eq!(names(&found), [Some("physical")]);
    // The line table stays in the file: it gives the line of the innermost code.
    let innermost = line_of(INLINED_C, "/* inner");
    assert!(
        found[0].line.is_none_or(|line| line == innermost),
        "{found:?}"
    );
}
