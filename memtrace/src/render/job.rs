//! The processes of a job in a few words: which they are, and which of them are not traced or not judged.

use crate::{escape::clean, recording::Untraced};

/// Characters of a command line that name a process.
const PROGRAM: usize = 40;

/// Processes listed by pid; the rest are counted.
const NAMED: usize = 2;

/// Most lines about untraced processes; the rest are counted.
const LINES: usize = 4;

/// The label of a process: its program and its arguments, without folders, as far as they fit.
pub(crate) fn program(comm: &str, cmdline: &[String]) -> String {
    let without_folder = |word: &str| match word.starts_with('/') {
        true => word.rsplit('/').next().unwrap_or(word).to_owned(),
        false => word.to_owned(),
    };
    let words: Vec<String> = cmdline.iter().map(|word| without_folder(word)).collect();
    // A program may write anything over its arguments, blanks included.
    let whole = match words.join(" ").trim() {
        "" => clean(comm),
        whole => clean(whole),
    };
    match whole.char_indices().nth(PROGRAM) {
        None => whole,
        Some(_) => whole.chars().take(PROGRAM - 1).chain(['…']).collect(),
    }
}

/// `812, 813 and 2 more`.
pub(super) fn few(names: &[String]) -> String {
    match names {
        // One that is left takes no more room than its number would.
        [named @ .., _] if named.len() > NAMED => {
            let more = names.len() - NAMED;
            format!("{} and {more} more", names[..NAMED].join(", "))
        }
        [most @ .., last] if !most.is_empty() => format!("{} and {last}", most.join(", ")),
        _ => names.concat(),
    }
}

/// `not traced: 812 and 813 of `python train.py` (--no-follow)`, a line for each program and reason.
pub(crate) fn untraced(processes: &[Untraced]) -> Vec<String> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for of in processes {
        let about = format!("`{}` ({})", program(&of.comm, &of.cmdline), clean(&of.why));
        let tgid = of.tgid.to_string();
        match groups.iter_mut().find(|(known, _)| *known == about) {
            Some((_, tgids)) => tgids.push(tgid),
            None => groups.push((about, vec![tgid])),
        }
    }
    let more = groups.split_off(groups.len().min(LINES));
    let lines = groups.into_iter();
    let mut lines: Vec<String> = lines
        .map(|(about, tgids)| format!("not traced: {} of {about}", few(&tgids)))
        .collect();
    if !more.is_empty() {
        let more: usize = more.iter().map(|(_, tgids)| tgids.len()).sum();
        lines.push(format!("not traced: {more} more"));
    }
    lines
}

/// Number of children without a verdict.
pub(super) fn too_short(children: u64) -> String {
    match children {
        1 => "1 process was observed too briefly to be judged".into(),
        n => format!("{n} processes were observed too briefly to be judged"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(Into::into).collect()
    }

    #[test]
    fn a_process_is_called_as_its_command_begins() {
        let python = words("/usr/bin/python3 /srv/train.py --epochs 3");
        assert_eq!(program("python3", &python), "python3 train.py --epochs 3");
        assert_eq!(program("kworker", &[]), "kworker");
        let renamed = ["postgres: writer ".to_owned(), String::new()];
        assert_eq!(program("postgres", &renamed), "postgres: writer");
        let long = program("sh", &words(&"x".repeat(90)));
        assert_eq!(long.chars().count(), PROGRAM);
        assert!(long.ends_with("x…"), "{long}");
    }

    #[test]
    fn untraced_processes_are_named_by_program_and_reason() {
        let of = |tgid, program: &str, why: &str| Untraced {
            tgid,
            comm: "python".into(),
            cmdline: words(program),
            why: why.into(),
        };
        let train = "/usr/bin/python train.py";
        let processes: Vec<_> = (7..12).map(|tgid| of(tgid, train, "--no-follow")).collect();
        assert_eq!(
            untraced(&processes[..2]),
            ["not traced: 7 and 8 of `python train.py` (--no-follow)"]
        );
        let others = [of(20, "sh", "--no-follow"), of(21, train, "denied")];
        assert_eq!(
            untraced(&[&processes[..], &others].concat()),
            [
                "not traced: 7, 8 and 3 more of `python train.py` (--no-follow)",
                "not traced: 20 of `sh` (--no-follow)",
                "not traced: 21 of `python train.py` (denied)",
            ]
        );
        assert!(untraced(&[]).is_empty());
        let programs: Vec<_> = (0..9)
            .map(|n| of(n, &format!("program-{n}"), "denied"))
            .collect();
        let lines = untraced(&programs);
        assert_eq!(lines.len(), LINES + 1);
        assert_eq!(lines[LINES], "not traced: 5 more");
    }

    #[test]
    fn few_processes_are_named_and_of_many_the_number() {
        let names = |n: u32| (1..=n).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(few(&names(1)), "1");
        assert_eq!(few(&names(2)), "1 and 2");
        assert_eq!(few(&names(3)), "1, 2 and 3");
        assert_eq!(few(&names(4)), "1, 2 and 2 more");
    }
}
