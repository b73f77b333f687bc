use std::{fs, path::Path};

use super::TARGETS;

/// What fuzzing has found stays mended.
#[test]
fn each_input_of_the_corpora_is_read() {
    for target in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fuzz/corpus")
            .join(target.name);
        let inputs = fs::read_dir(&folder).unwrap();
        let mut number = 0;
        for input in inputs {
            (target.run)(&fs::read(input.unwrap().path()).unwrap());
            number += 1;
        }
        assert!(number > 0, "no input in {}", folder.display());
    }
}
