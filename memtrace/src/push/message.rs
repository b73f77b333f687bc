//! Requests of Pyroscope's `push.proto` and Parca's `profilestore.proto`, and the answer of OpenTelemetry's
//! `profiles_service.proto`.

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Label {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RawSample {
    /// A compressed profile in pprof's format.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) raw_profile: Vec<u8>,
}

/// Pyroscope's `PushRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) series: Vec<PushSeries>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PushSeries {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<RawSample>,
}

/// Parca's `WriteRawRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WriteRawRequest {
    #[prost(message, repeated, tag = "2")]
    pub(super) series: Vec<WriteSeries>,
    /// Addresses do not depend on where a file was loaded.
    #[prost(bool, tag = "3")]
    pub(super) normalized: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WriteSeries {
    #[prost(message, optional, tag = "1")]
    pub(super) labels: Option<LabelSet>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LabelSet {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<Label>,
}

/// OpenTelemetry's `ExportProfilesServiceResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_profiles: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}
