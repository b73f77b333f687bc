//! Line tables compared with the interpreters' own answers.

use super::{
    super::lines::{has_reached, line},
    *,
};

/// A line per code object of the standard library's modules: its first line, its table, and the
/// range of each line.
const PRINT: &str = r#"
import dis, os, sys

def ranges(code):
    if hasattr(code, "co_lines"):
        return list(code.co_lines())
    starts = list(dis.findlinestarts(code))
    ends = [start for start, _ in starts[1:]] + [len(code.co_code)]
    return [(start, end, line) for (start, line), end in zip(starts, ends)]

def show(code):
    table = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab
    print(code.co_firstlineno, table.hex() or "-", *("%d:%d:%s" % r for r in ranges(code)))
    for inner in code.co_consts:
        if hasattr(inner, "co_code"):
            show(inner)

print(sys.version_info[1])
for name in "argparse ast asyncio/base_events asyncio/tasks dataclasses difflib enum inspect tarfile typing".split():
    path = os.path.join(os.path.dirname(os.__file__), name + ".py")
    with open(path, encoding="utf-8") as source:
        show(compile(source.read(), path, "exec"))
"#;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..][..2], 16).unwrap())
        .collect()
}

#[test]
fn every_instructions_line_matches_the_interpreters() {
    for interpreter in interpreters() {
        let output = Command::new(&interpreter)
            .args(["-I", "-c", PRINT])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut rows = text.lines();
        let minor: u32 = rows.next().unwrap().parse().unwrap();
        if minor < 9 {
            continue;
        }
        assert!(output.status.success(), "3.{minor}");
        let (mut objects, mut instructions) = (0, 0);
        for row in rows {
            let mut words = row.split(' ');
            let first = words.next().unwrap().parse().unwrap();
            let table = bytes(words.next().unwrap().trim_matches('-'));
            let mut reached_lines = HashSet::new();
            for range in words {
                let mut parts = range.split(':');
                let mut number = || parts.next().unwrap().parse::<u32>();
                let (start, end) = (number().unwrap(), number().unwrap());
                let expected = number().ok();
                let instruction = |at| if minor == 10 { at / 2 } else { at };
                if let Some(line) = expected.filter(|_| start < end) {
                    let reached = |at| has_reached(minor, first, &table, line, instruction(at));
                    assert!(reached(start) && reached(end), "3.{minor}: {first}, {line}");
                    let is_first = reached_lines.insert(line);
                    assert!(!is_first || start == 0 || !reached(start - 2));
                }
                for at in (start..end).step_by(2) {
                    assert_eq!(
                        line(minor, first, &table, instruction(at)),
                        expected,
                        "3.{minor}: first line {first}, instruction {at}"
                    );
                    instructions += 1;
                }
            }
            objects += 1;
        }
        eprintln!("3.{minor}: {objects} code objects, {instructions} instructions");
        assert!(objects > 500 && instructions > 50_000, "3.{minor}");
    }
}

#[test]
fn a_frame_that_has_not_begun_is_at_its_first_line() {
    for minor in 9..15 {
        for instruction in [-1, -2_i32] {
            let instruction = instruction.cast_unsigned();
            assert_eq!(line(minor, 41, &[], instruction), Some(41));
            let as_in_a_stack = instruction & ((1 << 28) - 1);
            assert_eq!(line(minor, 41, &[], as_in_a_stack), Some(41));
        }
    }
}

#[test]
fn random_tables_never_panic() {
    let mut random = random();
    for _ in 0..50_000 {
        let length = random() % 64;
        let mask = [0xff, 0x7f][random() as usize % 2];
        let mut table: Vec<u8> = (0..length).map(|_| random() as u8 & mask).collect();
        if let Some(first) = table.first_mut() {
            *first |= 0x80;
        }
        let first = [0, 1, u32::MAX, random() as u32][random() as usize % 4];
        let instruction = [random() % 256, random()][random() as usize % 2] as u32;
        for minor in 0..20 {
            line(minor, first, &table, instruction);
        }
    }
}
