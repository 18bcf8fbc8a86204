//! Paths in JSON: as text if they are UTF-8, else as their bytes, because a path on Linux may be
//! any bytes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Encoded {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&Path> for Encoded {
    fn from(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl From<Encoded> for PathBuf {
    fn from(encoded: Encoded) -> Self {
        match encoded {
            Encoded::Text(text) => text.into(),
            Encoded::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

/// For `#[serde(with)]` on a path.
pub(crate) mod one {
    use serde::{Deserializer, Serializer};

    use super::{Deserialize, Encoded, Path, PathBuf, Serialize};

    pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        Encoded::from(path).serialize(to)
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<PathBuf, D::Error> {
        Encoded::deserialize(from).map(PathBuf::from)
    }
}

/// For `#[serde(with)]` on a path that may be absent.
pub(crate) mod optional {
    use serde::{Deserializer, Serializer};

    use super::{Deserialize, Encoded, PathBuf, Serialize};

    // The signature is serde's.
    #[expect(clippy::ref_option, reason = "serde passes the field by reference")]
    pub(crate) fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        path.as_deref().map(Encoded::from).serialize(to)
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(
        from: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<Encoded>::deserialize(from)?.map(PathBuf::from))
    }
}

/// For `#[serde(with)]` on a list of paths.
pub(crate) mod list {
    use serde::{Deserializer, Serializer};

    use super::{Deserialize, Encoded, PathBuf};

    pub(crate) fn serialize<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(paths.iter().map(|path| Encoded::from(path.as_path())))
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        let paths = Vec::<Encoded>::deserialize(from)?;
        Ok(paths.into_iter().map(PathBuf::from).collect())
    }
}
