//! Address space: the live mappings in the ledger equal the difference of /proc/PID/maps, for every way to map, cut,
//! move and resize.

use memtrace_tests::{Fixture, record::Record, running::Running, targets};
use serde::Deserialize;
use std::process::Command;

#[derive(Deserialize)]
struct Change {
    bytes: u64,
    /// Contiguous pieces left; -1: a matter of definition.
    pieces: i64,
}

/// Attaches to a target that waits, lets it play a scenario of vm.c and
/// compares. All that was mapped since belongs to the scenario's function.
fn scenario(name: &str) {
    let fixture = Fixture::new();
    let mut target = Running::start(Command::new(targets::program("vm.c")).arg(name));
    target.await_stdout("ready");
    let record = Record::attach(&fixture, target.pid(), &[]);
    target.send("!");
    let said = target.await_stdout("{");
    let report = record.stop();
    target.expect_alive();

    let truth: Change = serde_json::from_str(&said).expect("the target writes JSON");
    let total = report.total(target.pid(), "vm");
    assert_eq!(total.live_bytes, truth.bytes, "{total:?}");
    if let Ok(pieces) = u64::try_from(truth.pieces) {
        assert_eq!(total.live_count, pieces, "{total:?}");
    }
    let site = (target.pid(), name.to_owned());
    let own = report.sites("vm").get(&site).copied().unwrap_or_default();
    assert_eq!(own.live_bytes, truth.bytes, "{own:?}");
    report.expect_no_losses(0);
    target.send("!");
    target.wait().expect_code(0);
}

macro_rules! scenarios {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            scenario(stringify!($name));
        }
    )* };
}

scenarios! {
    map map_odd_length map_fixed_middle map_fixed_beyond map_refused
    unmap_all unmap_start unmap_middle unmap_end unmap_odd_length unmap_several unmap_refused
    remap_grow_in_place remap_move remap_shrink remap_part remap_over_another remap_refused
    remap_keeping_old remap_duplicate
    brk_up brk_down brk_odd brk_refused
    shared_segment shared_segment_detached
}
