//! Real objects in which a few words are wrong: every decoder returns soon, and allocates little.

use super::recorded::{decode, decode_roots, recorded};
use crate::holders::fuzz;

#[test]
fn mutated_objects_are_read_to_an_end() {
    let mut versions = recorded();
    // Untouched, so that only correct memory is mutated.
    for version in &versions {
        let python = version.python();
        let objects = version.objects.iter();
        let held = objects.filter(|&&object| decode(&python, &version.memory, object) > 0);
        assert!(held.count() > 200, "3.{}", python.minor());
        let roots = decode_roots(&python, &version.memory);
        assert!(roots > 100, "3.{}: {roots}", python.minor());
    }
    let mut references = [0; 6];
    fuzz::run(|random| {
        let number = random.index(versions.len());
        let version = &mut versions[number];
        let object = random.pick(&version.objects);
        let kind = random.below(128);
        let python = version.python();
        // The search for roots begins at the state of the interpreter.
        let start = if kind == 0 { python.state() } else { object };
        version.memory.mutate(random, start);
        references[number] += match kind {
            0 => decode_roots(&python, &version.memory),
            1 => {
                let mut tracked = 0;
                python.tracked(&version.memory, &mut |_, _| tracked += 1);
                tracked
            }
            _ => decode(&python, &version.memory, object),
        };
        version.memory.restore();
    });
    assert!(!references.contains(&0), "{references:?}");
}
