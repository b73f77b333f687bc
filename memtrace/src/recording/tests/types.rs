//! Types of Python's objects that grew.

use super::*;
use crate::recording::fixture::history;

#[test]
fn types_read_back_the_largest_first() {
    let (_directory, path) = temporary();
    let mut writer = Writer::create(&path, false, &meta()).unwrap();
    let objects = |second, count| Objects {
        time_ns: START + second * SECOND,
        count,
        bytes: 64 * count,
    };
    let of = |name: &str, last| GrowingType {
        name: name.into(),
        first: objects(2, 100),
        last: objects(12, last),
        examined: 32,
        unreached: 31,
        ways: vec![Way {
            blocks: last as u32 / 100,
            held: WayKind::Path(history(None)),
        }],
    };
    let census = Census {
        counted: 9,
        too_large: 1,
        unreadable: 2,
    };
    let types = [of("dict", 300), of("multidict.CIMultiDict", 1200)];
    writer.types(ProcessId(2), &census, &types).unwrap();
    writer.types(ProcessId(1), &Census::default(), &[]).unwrap();
    writer.finish(START + SECOND).unwrap();
    let read = || Recording::open(&path).unwrap().types();
    let [dict, multidict] = types;
    let expected = [
        (ProcessId(1), Census::default(), vec![]),
        (ProcessId(2), census, vec![multidict.clone(), dict]),
    ];
    assert_eq!(read().unwrap(), expected);
    assert_eq!(multidict.per_s(), 110.0);
    assert_eq!(
        (multidict.size(), multidict.is_unreached()),
        (64, Some(true))
    );

    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute("UPDATE growing_type SET last_count = -1", [])
        .unwrap();
    let error = read().unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
}
