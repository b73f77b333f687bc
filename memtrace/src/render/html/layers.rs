//! The layers of a page, and how a chart may draw each: layers overlap.

use serde::Serialize;

use crate::{event::Layer, render::collapsed::layer_name};

/// How a layer's live bytes relate to resident memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Drawn {
    /// Blocks of the process's own memory, which overlap with no other layer drawn so.
    Stacked,
    /// Address space, which need not be resident.
    Space,
    /// Within other layers' memory.
    Within,
    /// Memory of devices, or locked for them.
    Device,
}

/// A layer.
#[derive(Debug, Serialize)]
pub(super) struct LayerData {
    pub(super) name: String,
    pub(super) drawn: Drawn,
}

/// All layers of a page, in order of appearance.
#[derive(Debug, Default)]
pub(super) struct Layers {
    pub(super) list: Vec<LayerData>,
    keys: Vec<(Layer, bool)>,
}

fn drawn(layer: Layer, by_allocator: bool) -> Drawn {
    match layer {
        Layer::Vm if !by_allocator => Drawn::Space,
        Layer::Heap | Layer::Python => Drawn::Stacked,
        Layer::Pinned => Drawn::Device,
        layer if by_allocator || !layer.of_device() => Drawn::Within,
        _ => Drawn::Device,
    }
}

impl Layers {
    /// The place of a layer.
    pub(super) fn place(&mut self, layer: Layer, by_allocator: bool) -> usize {
        if let Some(place) = self.known(layer, by_allocator) {
            return place;
        }
        self.keys.push((layer, by_allocator));
        self.list.push(LayerData {
            name: layer_name(layer, by_allocator),
            drawn: drawn(layer, by_allocator),
        });
        self.list.len() - 1
    }

    /// The place of a layer that some site has.
    pub(super) fn known(&self, layer: Layer, by_allocator: bool) -> Option<usize> {
        let mut keys = self.keys.iter();
        keys.position(|known| *known == (layer, by_allocator))
    }
}
