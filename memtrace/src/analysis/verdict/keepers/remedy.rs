//! What to do about a keeper.

use super::keeper::{How, Keeper};
use crate::{
    analysis::verdict::advice::Advice,
    frames::Language,
    recording::{Path, Step, StepKind},
};

/// The advice on a keeper of blocks that a program in this language allocates; `None`: find the keeper first.
pub(super) fn remedy(keeper: &Keeper, language: Option<Language>) -> Option<Advice> {
    Some(match &keeper.how {
        // The words may be left over: check them first.
        How::Path { .. } if keeper.is_likely() => return None,
        How::Container(name) => of_container(name),
        How::Path { path, .. } => of_path(path),
        How::Cycle { .. } => Advice::BreakCycle,
        How::Surplus { .. } => Advice::GiveReferenceBack,
        How::Hidden { .. } => Advice::BreakHiddenCycle,
        How::Nothing { .. } | How::LostWith { .. } => Advice::FreeInTime(language),
        How::LostCycle { .. } => Advice::OwnOneWay(language),
    })
}

fn of_path(path: &Path) -> Advice {
    let types = || {
        path.steps
            .iter()
            .filter_map(|step| step.type_name.as_deref())
    };
    let container = path.container.map(|container| &path.steps[container]);
    // Its keys and values are other calls' arguments and results.
    if let Some(cache) = container.filter(|of| of.type_name.as_deref() == Some("lru_cache")) {
        return of_step(cache);
    }
    let has_type = |begin: &str| types().any(|name| name.starts_with(begin));
    if types().any(is_node_of_autograd) {
        return Advice::DropGraph;
    }
    if has_type("traceback") || path.steps.iter().any(|step| step.name == ".__traceback__") {
        return Advice::DropTraceback;
    }
    if has_type("google::protobuf::") || has_type("google._upb.") {
        return Advice::RenewMessage;
    }
    if path.chain().is_some() {
        return Advice::CutChain;
    }
    container.map_or(Advice::DropReference, of_step)
}

/// Whether it is an operation in a graph of autograd. Parameters have other objects of it.
fn is_node_of_autograd(name: &str) -> bool {
    name.starts_with("torch::autograd::") && name.contains("Backward")
}

fn of_step(container: &Step) -> Advice {
    match container.type_name.as_deref() {
        _ if container.limit.is_some() => Advice::LowerLimit,
        Some("lru_cache") => Advice::LimitCache,
        Some(name) if container.kind == StepKind::Object => of_container(name),
        _ => Advice::LimitContainer,
    }
}

fn of_container(name: &str) -> Advice {
    match name {
        "list" => Advice::LimitList,
        "dict" => Advice::LimitDict,
        _ => Advice::LimitContainer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::fixture::{history, step, tree};

    #[test]
    fn advice_is_about_what_keeps_the_blocks() {
        let of = |path| of_path(&path);
        assert_eq!(of(history(None)), Advice::LimitList);
        assert_eq!(of(tree()), Advice::DropReference);
        let mut chain = tree();
        chain.steps[2].type_name = chain.steps[1].type_name.clone();
        assert_eq!(of(chain), Advice::CutChain);
        let with = |name: &str, of_type: &str| {
            let mut path = history(None);
            path.steps.insert(4, step(StepKind::Object, name, of_type));
            of_path(&path)
        };
        let graph = with("", "torch::autograd::generated::AddmmBackward0");
        assert_eq!(graph, Advice::DropGraph);
        assert_eq!(with(".__traceback__", ""), Advice::DropTraceback);
        assert_eq!(with("", "traceback"), Advice::DropTraceback);
        assert_eq!(with("", "google::protobuf::Arena"), Advice::RenewMessage);
        let keeper = |how| Keeper::new(how, None);
        let lost = keeper(How::Nothing { share: 1.0 });
        let of_c = Advice::FreeInTime(Some(Language::C));
        assert_eq!(remedy(&lost, Some(Language::C)), Some(of_c));
    }
}
