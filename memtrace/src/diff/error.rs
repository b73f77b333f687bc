//! The errors of a comparison.

/// Why recordings cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("`{0}` has no intervals: nothing was recorded; record again, longer")]
    Empty(String),
    #[error(
        "`{run}` has no allocation at `{place}`; give `--per alloc-of=` a function or `file:line`; these allocate most often: `{known}`"
    )]
    NoSuchPlace {
        run: String,
        place: String,
        known: String,
    },
}
