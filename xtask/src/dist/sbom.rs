//! The list of what the static binary contains, as CycloneDX (https://cyclonedx.org/docs/1.5/json/).

use super::linked::linked;
use crate::command::{PACKAGE, output};
use anyhow::Result;
use serde_json::{Value, json};
use std::{path::Path, process::Command};

/// The list for a binary.
///
/// # Errors
/// When cargo cannot list the packages, or the binary cannot be read.
pub(super) fn of(binary: &Path) -> Result<String> {
    let version = env!("CARGO_PKG_VERSION");
    let purl = purl(PACKAGE, version);
    let hash = output(Command::new("sha256sum").arg(binary))?;
    let mut components: Vec<Value> = linked()?.iter().map(component).collect();
    let rustc = output(Command::new("rustc").arg("--version"))?;
    components.push(json!({
        "type": "library",
        "name": "Rust's standard library",
        "version": rustc.split_whitespace().nth(1),
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
    }));
    components.push(json!({
        "type": "library",
        "name": "musl",
        "licenses": [{ "license": { "id": "MIT" } }],
    }));
    let bom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": purl,
                "name": "memtrace",
                "version": version,
                "purl": purl,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
                "hashes": [{ "alg": "SHA-256", "content": hash.split_whitespace().next() }],
            },
        },
        "components": components,
    });
    Ok(serde_json::to_string_pretty(&bom)? + "\n")
}

fn component(package: &Value) -> Value {
    let field = |name: &str| package[name].as_str().unwrap_or_default();
    let (name, version) = (field("name"), field("version"));
    let purl = purl(name, version);
    let mut component = json!({
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    });
    if let Some(licence) = package["license"].as_str() {
        // Cargo once wrote alternatives with a slash.
        let expression = licence
            .replace('/', " OR ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    component
}

fn purl(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_expressions() {
        let package = json!({ "name": "fnv", "version": "1.0.7", "license": "Apache-2.0 / MIT" });
        let component = component(&package);
        assert_eq!(component["purl"], "pkg:cargo/fnv@1.0.7");
        let expression = &component["licenses"][0]["expression"];
        assert_eq!(expression, "Apache-2.0 OR MIT");
        let none = super::component(&json!({ "name": "a", "version": "1.0.0" }));
        assert!(none.get("licenses").is_none());
    }
}
