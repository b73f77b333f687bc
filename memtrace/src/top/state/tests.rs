use super::*;
use crate::top::fixture::{held, later, reading};
use crate::view::By;

fn live() -> State {
    let mut state = State::new(Origin::Live(vec![4242]));
    state.phase = Phase::Recording;
    state.take(reading());
    state
}

fn press(state: &mut State, code: KeyCode) -> Action {
    state.press(KeyEvent::new(code, KeyModifiers::NONE))
}

fn figures(state: &State) -> Vec<u64> {
    state.rows().iter().map(|row| row.live_bytes).collect()
}

#[test]
fn rows_are_sorted_with_an_allocators_mappings_last() {
    let mut state = live();
    assert_eq!(figures(&state), [1 << 20, 100, 8192]);
    press(&mut state, KeyCode::Char('s'));
    assert_eq!(state.choice.sort, Sort::Live);
    assert_eq!(figures(&state), [1 << 20, 100, 8192]);
    press(&mut state, KeyCode::Char('s'));
    assert_eq!(state.choice.sort, Sort::Growth);
    assert_eq!(figures(&state)[0], 1 << 20);
    press(&mut state, KeyCode::Char('s'));
    press(&mut state, KeyCode::Char('s'));
    assert_eq!(state.choice.sort, Sort::Blocks);
    // Ten blocks come before four.
    assert_eq!(figures(&state), [100, 1 << 20, 8192]);
    press(&mut state, KeyCode::Char('s'));
    assert_eq!(state.choice.sort, Sort::Leaks);
}

#[test]
fn rows_with_a_leak_come_first() {
    let mut held = held();
    let small = held.snapshot.sites[3].key;
    let judged = held.verdicts.drain().map(|(_, judged)| (small, judged));
    held.verdicts = judged.collect();
    let mut state = live();
    state.take(held);
    assert_eq!(figures(&state), [100, 1 << 20, 8192]);
    assert!(state.rows()[0].is_leak && !state.rows()[1].is_leak);
}

#[test]
fn sites_are_grouped_by_what_the_user_chooses() {
    let mut state = live();
    let mut seen = Vec::new();
    for _ in Grouping::ALL {
        let names: Vec<String> = state.rows().iter().map(|row| row.name.clone()).collect();
        seen.push((state.choice.grouping, names));
        press(&mut state, KeyCode::Char('g'));
    }
    let of = |grouping| {
        let found = seen.iter().find(|(of, _)| *of == grouping);
        found.unwrap().1.clone()
    };
    assert_eq!(of(Grouping::Layer), ["all of heap", "all of vm"]);
    assert_eq!(
        of(Grouping::Process),
        ["4242 leaker", "4243 leaker", "4242 leaker"]
    );
    assert_eq!(
        of(Grouping::By(By::Module)),
        ["/usr/bin/leaker", "[no stack]", "/usr/bin/leaker"]
    );
    assert_eq!(state.choice.grouping, Grouping::By(By::ProgramLine));
}

#[test]
fn growth_is_per_second_over_the_last_half_minute() {
    let mut reading = reading();
    assert_eq!(reading.recent().seconds(), 10.0);
    // Each second of a long recording.
    let start = reading.snapshot.meta.started_ns;
    reading.courses.times_ns = (1..=100)
        .map(|second| start + second * 1_000_000_000)
        .collect();
    assert_eq!(reading.recent().seconds(), 30.0);
    reading.is_open = false;
    assert_eq!(reading.recent().seconds(), 100.0);
    let state = live();
    assert_eq!(state.rows()[0].growth, f64::from(1 << 20) / 10.0);
}

#[test]
fn the_selection_stays_with_its_row() {
    let mut state = live();
    press(&mut state, KeyCode::Down);
    assert_eq!(state.selected_row().unwrap().live_bytes, 100);
    // The row moves up.
    let mut reading = reading();
    reading.snapshot.sites[3].totals.live_bytes = 5 << 20;
    state.take(reading);
    assert_eq!(state.selected(), 0);
    assert_eq!(state.selected_row().unwrap().live_bytes, 5 << 20);
    press(&mut state, KeyCode::End);
    press(&mut state, KeyCode::Down);
    assert_eq!(state.selected(), 2);
    press(&mut state, KeyCode::PageUp);
    press(&mut state, KeyCode::Home);
    press(&mut state, KeyCode::Up);
    assert_eq!(state.selected(), 0);
}

#[test]
fn the_age_is_that_of_the_median_byte() {
    let state = live();
    // Scanned at 10 s: half of the bytes were born after 1 s, by 4 s.
    assert_eq!(state.rows()[0].age_ns, Some(6_000_000_000));
    assert_eq!(state.rows()[1].age_ns, None);
}

#[test]
fn one_layer_at_a_time() {
    let mut state = live();
    press(&mut state, KeyCode::Char('l'));
    assert_eq!(state.choice.layer, Some(Layer::Heap));
    assert_eq!(figures(&state), [1 << 20, 100]);
    press(&mut state, KeyCode::Char('l'));
    assert_eq!(state.choice.layer, None);
}

#[test]
fn a_search_is_for_live_recordings() {
    let mut state = live();
    assert_eq!(press(&mut state, KeyCode::Char('h')), Action::Search);
    state.phase = Phase::Ended;
    assert_eq!(press(&mut state, KeyCode::Char('h')), Action::Nothing);
    assert!(state.message.contains("has ended"), "{}", state.message);
    let mut of_file = State::new(Origin::File("a.mtr".into()));
    of_file.take(reading());
    assert_eq!(press(&mut of_file, KeyCode::Char('h')), Action::Nothing);
    assert!(
        of_file.message.contains("top -p PID"),
        "{}",
        of_file.message
    );
}

#[test]
fn every_way_to_quit_quits() {
    for code in [KeyCode::Char('q'), KeyCode::Esc] {
        assert_eq!(press(&mut live(), code), Action::Quit);
    }
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(live().press(control_c), Action::Quit);
    let mut typing = live();
    press(&mut typing, KeyCode::Char('/'));
    assert_eq!(press(&mut typing, KeyCode::Char('q')), Action::Nothing);
    assert_eq!(typing.press(control_c), Action::Quit);
    let control_z = KeyEvent::new(KeyCode::Char('z'), KeyModifiers::CONTROL);
    assert_eq!(live().press(control_z), Action::Suspend);
}

#[test]
fn a_mark_knows_new_sites() {
    let mut state = live();
    press(&mut state, KeyCode::Char('m'));
    assert_eq!(state.rows()[0].growth, 0.0);
    state.take(later(64));
    assert_eq!(state.rows()[0].growth, 64.0);
}

#[test]
fn freed_memory_counts_for_the_change_of_its_row() {
    let layers = |state: &mut State| {
        while state.choice.grouping != Grouping::Layer {
            press(state, KeyCode::Char('g'));
        }
    };
    let emptied = || {
        let mut reading = reading();
        reading.snapshot.sites[1].totals.live_bytes = 0;
        reading
    };
    let mut state = live();
    layers(&mut state);
    press(&mut state, KeyCode::Char('m'));
    state.take(emptied());
    let heap = &state.rows()[0];
    assert_eq!((heap.live_bytes, heap.growth), (100, -f64::from(1 << 20)));
    assert_eq!(heap.sites, 1);

    // Seventy seconds after the start, there were three steps of the ten to go.
    let mut reading = emptied();
    let start = reading.snapshot.meta.started_ns;
    let times = (1..=10).map(|step| start + step * 10_000_000_000);
    reading.courses.times_ns = times.collect();
    let mut state = live();
    layers(&mut state);
    state.take(reading);
    let before = f64::from((1 << 20) - 3 * (100 << 10));
    assert_eq!(state.rows()[0].growth, (100.0 - before) / 30.0);
}

#[test]
fn peaks_are_no_change_since_a_mark() {
    let mut state = live();
    press(&mut state, KeyCode::Char('m'));
    assert!(state.mark.is_some());
    let mut ended = reading();
    for process in &mut ended.snapshot.processes {
        process.row.ended_ns = Some(process.row.started_ns + 1);
    }
    state.take(ended);
    assert!(state.mark.is_none());
    press(&mut state, KeyCode::Char('m'));
    assert!(state.mark.is_none());
    assert!(state.message.contains("nothing changes"));
}
