use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::Color,
};

use super::*;
use crate::{
    frames::fixture::native,
    top::{
        fixture::{deep, held, later, reading, with_stack},
        reading::Reading,
        state::{Action, Origin, Phase},
    },
};

fn state(reading: Reading) -> State {
    let mut state = State::new(Origin::Live(vec![4242]));
    state.phase = Phase::Recording;
    state.take(reading);
    state
}

fn press(state: &mut State, code: KeyCode) -> Action {
    state.press(KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_text(state: &mut State, text: &str) {
    for c in text.chars() {
        press(state, KeyCode::Char(c));
    }
}

fn drawn(state: &mut State, width: u16, height: u16, style: Style) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, style)).unwrap();
    terminal.backend().clone()
}

/// The lines of the screen.
fn lines(state: &mut State, width: u16, height: u16) -> Vec<String> {
    let backend = drawn(state, width, height, Style::without_colours());
    let cells = backend.buffer().content();
    let lines = cells.chunks(width.into());
    lines
        .map(|line| {
            line.iter()
                .map(ratatui::buffer::Cell::symbol)
                .collect::<String>()
        })
        .map(|line| line.trim_end().to_owned())
        .collect()
}

fn screen(state: &mut State) -> String {
    lines(state, 80, 24).join("\n")
}

#[track_caller]
fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
}

#[test]
fn the_first_screen_has_the_growing_line_its_stack_and_the_keys() {
    let mut state = state(reading());
    let lines = lines(&mut state, 80, 24);
    assert_eq!(lines.len(), 24);
    assert!(
        lines[0].starts_with("memtrace: pid 4242, ./leaker t"),
        "{}",
        lines[0]
    );
    let end = "…, and 1 more process  recording for 10.0 s";
    assert!(lines[0].ends_with(end), "{}", lines[0]);
    assert!(lines[1].starts_with("RSS       9.5 MiB"), "{}", lines[1]);
    assert!(lines[1].ends_with("976.6 KiB to 9.5 MiB"), "{}", lines[1]);
    assert!(
        lines[1].contains("▁") && lines[1].contains("█"),
        "{}",
        lines[1]
    );
    assert!(lines[2].starts_with("live      1.0 MiB"), "{}", lines[2]);
    let heading = lines
        .iter()
        .position(|line| line.contains("GROWTH/s"))
        .unwrap();
    assert_eq!(heading, 4);
    let row = &lines[heading + 1];
    assert_eq!(
        row.trim(),
        "1.0 MiB  +102.4 KiB    6 s      4 heap   grow;it  /src/leaker.c:7",
        "{row}"
    );
    assert_has(
        &lines.join("\n"),
        &["grow;it (inlined)  /src/leaker.c:7", "leaker+0x1234"],
    );
    assert!(
        lines[23].starts_with("q quit  ? help  / filter  s sort"),
        "{}",
        lines[23]
    );
}

#[test]
fn numbers_are_aligned_and_no_unit_is_cut() {
    for (width, height) in [(80, 24), (200, 50), (120, 30), (60, 20)] {
        let lines = lines(&mut state(reading()), width, height);
        let heading = lines
            .iter()
            .position(|line| line.contains("GROWTH/s"))
            .unwrap();
        let end = |line: &str, part: &str| line.find(part).map(|at| at + part.len());
        assert_eq!(
            end(&lines[heading], "GROWTH/s"),
            end(&lines[heading + 1], "+102.4 KiB"),
            "{width}x{height}"
        );
        assert_eq!(end(&lines[heading], "AGE"), end(&lines[heading + 1], "6 s"));
        assert!(
            lines
                .iter()
                .all(|line| line.chars().count() <= width.into())
        );
    }
}

#[test]
fn what_keeps_the_blocks_is_on_the_first_screen() {
    let mut held = state(held());
    let small = screen(&mut held);
    assert_has(
        &small,
        &[
            "4 blocks; leak (grade B); allocated 5, freed 1; pid 4242",
            "\nkept by    __main__.service.history (list, 1,648 items, +27/s)\n",
            "\nfilled by  Service.handle  /srv/app/server.py:34\n",
            "\nseen       4 of 4 blocks examined\n",
            "\nstack      grow;it",
        ],
    );
    let large = lines(&mut held, 200, 50).join("\n");
    assert_has(
        &large,
        &[
            "KEPT BY",
            "  __main__.service.history (list, 1,648 items, +27/s)",
            "\npath       module __main__ . service . history [i] →",
        ],
    );
    let before = screen(&mut state(reading()));
    assert_has(&before, &["kept by    press h to search the process"]);
}

#[test]
fn a_large_screen_lists_processes() {
    let large = lines(&mut state(reading()), 200, 50).join("\n");
    assert_has(&large, &["PROCESS", "4242 heap", "4243 heap"]);
    assert!(!screen(&mut state(reading())).contains("PROCESS"));
}

#[test]
fn without_colours_there_are_none() {
    let mut state = state(reading());
    let colours = |state: &mut State, style| {
        let backend = drawn(state, 80, 24, style);
        let cells = backend.buffer().content().iter();
        cells
            .filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
            .count()
    };
    assert_eq!(colours(&mut state, Style::without_colours()), 0);
    let backend = drawn(&mut state, 80, 24, Style::without_colours());
    let reversed =
        |cell: &&ratatui::buffer::Cell| cell.modifier.contains(ratatui::style::Modifier::REVERSED);
    assert!(
        backend
            .buffer()
            .content()
            .iter()
            .any(|cell| reversed(&cell))
    );
}

#[test]
fn hostile_names_are_harmless_and_keep_the_columns() {
    let hostile = native(
        "evil\x1b]0;owned\x07\u{202e}漢字\u{200b}\r\nx",
        "/tmp/\x1b[2Jm",
    );
    let mut reading = with_stack(vec![hostile]);
    reading.snapshot.processes[0].row.comm = "\x1b[31m\u{9b}\nzz".into();
    reading.snapshot.processes[0].row.cmdline = vec!["漢\x1b[31m".into()];
    let mut state = state(reading);
    for (width, height) in [(80, 24), (200, 50)] {
        let backend = drawn(&mut state, width, height, Style::without_colours());
        for cell in backend.buffer().content() {
            let symbol = cell.symbol();
            assert_eq!(symbol.chars().count(), 1, "{symbol:?}");
            assert!(!symbol.chars().any(char::is_control), "{symbol:?}");
            assert_eq!(ratatui::text::Span::raw(symbol).width(), 1, "{symbol:?}");
        }
    }
    assert_has(&screen(&mut state), &["evil\\u{1b}]0;"]);
    // Whatever is typed, too.
    press(&mut state, KeyCode::Char('/'));
    type_text(&mut state, "漢\u{301}");
    let backend = drawn(&mut state, 80, 24, Style::without_colours());
    assert!(
        backend
            .buffer()
            .content()
            .iter()
            .all(|cell| cell.symbol().chars().count() == 1)
    );
}

#[test]
fn a_filter_leaves_rows_that_have_its_text() {
    let mut state = state(reading());
    assert_eq!(state.rows().len(), 3);
    press(&mut state, KeyCode::Char('/'));
    type_text(&mut state, "LEAKER.c");
    assert!(screen(&mut state).ends_with("/LEAKER.c"));
    assert_eq!(state.rows().len(), 2);
    press(&mut state, KeyCode::Backspace);
    press(&mut state, KeyCode::Enter);
    assert_has(&screen(&mut state), &["only with \"LEAKER.\"", "q quit"]);
    // Keys are commands again.
    assert_eq!(press(&mut state, KeyCode::Char('q')), Action::Quit);
    press(&mut state, KeyCode::Char('/'));
    type_text(&mut state, "nothing has this");
    assert_has(
        &screen(&mut state),
        &["No row matches.", "Esc clears the filter"],
    );
    assert_eq!(press(&mut state, KeyCode::Esc), Action::Nothing);
    assert_eq!(state.rows().len(), 3);
}

#[test]
fn a_frozen_screen_shows_newer_readings_later() {
    let mut state = state(reading());
    press(&mut state, KeyCode::Char(' '));
    state.take(later(4 << 20));
    let frozen = screen(&mut state);
    assert_has(&frozen, &["FROZEN", "   1.0 MiB  +102.4 KiB"]);
    press(&mut state, KeyCode::Char(' '));
    let now = screen(&mut state);
    assert_has(&now, &["   5.0 MiB"]);
    assert!(!now.contains("FROZEN"));
}

#[test]
fn a_mark_turns_growth_into_changes_since_then() {
    let mut state = state(reading());
    press(&mut state, KeyCode::Char('m'));
    assert_has(&screen(&mut state), &["CHANGE", "changes since the mark"]);
    state.take(later(3 << 20));
    let marked = screen(&mut state);
    assert_has(&marked, &["   4.0 MiB    +3.0 MiB"]);
    press(&mut state, KeyCode::Char('M'));
    assert_has(&screen(&mut state), &["GROWTH/s"]);
}

#[test]
fn a_long_stack_keeps_the_programs_own_line() {
    let mut state = state(with_stack(deep(30)));
    let small = screen(&mut state);
    assert_has(
        &small,
        &[
            "std::inner1  ",
            "more frames",
            "Handler::keep  /srv/app/src/handler.cc:77",
        ],
    );
    let large = lines(&mut state, 200, 50).join("\n");
    assert_has(&large, &["std::inner12", "Handler::keep"]);
}

#[test]
fn losses_come_first() {
    let mut reading = reading();
    reading.snapshot.losses[0].1 = 5;
    assert_has(
        &screen(&mut state(reading)),
        &["5 lost", "figures are bounds"],
    );
}

#[test]
fn the_empty_screen_says_why_it_is_empty() {
    let mut state = State::new(Origin::Live(vec![7]));
    assert_has(
        &screen(&mut state),
        &["pid 7  setting probes", "Setting probes", "q quit"],
    );
    state.phase = Phase::Recording;
    let mut nothing = reading();
    nothing.snapshot.sites.clear();
    nothing.courses.sites.clear();
    state.take(nothing);
    assert_has(
        &screen(&mut state),
        &["Nothing that was allocated since the start is still live."],
    );
}

#[test]
fn the_help_has_every_key_and_fits() {
    let mut state = state(reading());
    press(&mut state, KeyCode::Char('?'));
    let help = screen(&mut state);
    let keys = crate::top::keys::BINDINGS.iter();
    for binding in keys.filter(|binding| !binding.help.is_empty()) {
        assert_has(&help, &[binding.help]);
    }
    assert_has(&help, &["live      heap and Python's arenas"]);
    assert_eq!(press(&mut state, KeyCode::Esc), Action::Nothing);
    assert!(!state.shows_help);
}

#[test]
fn a_narrow_terminal_keeps_names_and_figures() {
    let small = lines(&mut state(reading()), 40, 10);
    assert!(small[1].starts_with("RSS       9.5 MiB"), "{}", small[1]);
    assert!(small[1].ends_with('█'), "{}", small[1]);
    assert_has(&small.join("\n"), &["LAYER  WHERE", "heap   grow;it"]);
    let wider = lines(&mut state(reading()), 50, 12).join("\n");
    assert_has(&wider, &["AGE LAYER", "6 s heap "]);
}

#[test]
fn a_tiny_terminal_gets_a_line_instead() {
    let mut state = state(reading());
    assert_has(
        &lines(&mut state, 30, 5).join("\n"),
        &["at least 40 x 10 needed"],
    );
    for width in 1..90 {
        for height in [1, 2, 9, 10, 11, 24] {
            lines(&mut state, width, height);
        }
    }
}
