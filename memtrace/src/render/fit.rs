//! Text that has to fit into so many columns. Each character is taken to need one.

/// Its first characters, if there are more than `columns`.
pub(crate) fn cut(line: &str, columns: usize) -> String {
    match line.char_indices().nth(columns) {
        None => line.to_owned(),
        Some(_) => line
            .chars()
            .take(columns.saturating_sub(1))
            .chain(['…'])
            .collect(),
    }
}

/// The end of a path, from a folder on, in at most this many characters; the file's name is never
/// cut.
pub(crate) fn shortened(path: &str, room: usize) -> String {
    if path.chars().count() <= room {
        return path.to_owned();
    }
    let mut ends = path.match_indices('/').map(|(at, _)| &path[at..]);
    let fits = |end: &&str| end.chars().count() < room;
    let end = ends.clone().find(fits).or_else(|| ends.next_back());
    match end.filter(|end| end.len() < path.len()) {
        Some(end) => format!("…{end}"),
        None => path.to_owned(),
    }
}
