//! Map values as arguments of global functions: pointers or, for kernels that take only numbers there (before Linux 5.12),
//! what they are found by.

/// A map value that global functions take.
pub(crate) trait Argument: Sized + 'static {
    type As: Copy;

    /// It as an argument.
    fn argument(&mut self) -> Self::As;

    /// What an argument stands for.
    fn of(argument: Self::As) -> Option<&'static mut Self>;
}

/// How a `T` is passed.
pub(crate) type As<T> = <T as Argument>::As;

/// Passes a type by pointer.
#[cfg(not(feature = "legacy"))]
macro_rules! by_pointer {
    ($type:ty) => {
        impl $crate::argument::Argument for $type {
            type As = *mut Self;

            #[inline(always)]
            fn argument(&mut self) -> *mut Self {
                self
            }

            #[inline(always)]
            fn of(argument: *mut Self) -> Option<&'static mut Self> {
                // SAFETY: null, or the caller's map value.
                unsafe { argument.as_mut() }
            }
        }
    };
}
#[cfg(not(feature = "legacy"))]
pub(crate) use by_pointer;
