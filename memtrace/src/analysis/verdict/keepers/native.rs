//! Native code that probably took a reference and did not give it back: what Python code called in an extension.

use crate::{
    frames::{Frame, extension, installed},
    recording::{Fact, Stack},
};

/// The function of an extension on a stack, and its package with the version, if it is one. `facts` are its process's.
pub(super) fn native_code(stack: &Stack, facts: &[&Fact]) -> Option<(Frame, Option<String>)> {
    let frame = extension(stack.of_caller())?;
    let package = frame.module.as_deref().and_then(package);
    let versioned = package.map(|name| {
        let field = format!("python.package.{name}");
        let fact = facts.iter().find(|fact| fact.field == field);
        let version = fact.and_then(|fact| fact.value.split([';', ' ']).next());
        match version {
            Some(version) => format!("{name} {version}"),
            None => name,
        }
    });
    Some((frame.clone(), versioned))
}

/// The name of the package that a module's file belongs to, as the fingerprint has it.
fn package(module: &str) -> Option<String> {
    let path = installed(module)?;
    let (folder, _) = path.strip_prefix("site-packages/")?.split_once('/')?;
    let name = folder.strip_suffix(".libs").unwrap_or(folder);
    Some(name.to_lowercase().replace(['_', '.'], "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_belongs_to_the_package_of_its_folder() {
        let of = |path: &str| package(path);
        let site = "/venv/lib/python3.12/site-packages";
        assert_eq!(
            of(&format!("{site}/ruamel_yaml/_ext.so")).as_deref(),
            Some("ruamel-yaml")
        );
        assert_eq!(
            of(&format!("{site}/numpy.libs/libopenblas.so")).as_deref(),
            Some("numpy")
        );
        assert_eq!(of(&format!("{site}/single.so")), None);
        assert_eq!(of("/srv/leaky.so"), None);
    }
}
