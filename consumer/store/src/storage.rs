//! Storage of a store: a directory or an object store. A file appears atomically. The same calls list and
//! read both kinds.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use futures::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, ObjectStoreScheme, parse_url_opts};
use url::{Position, Url};

use crate::footer::{self, Provenance};
use crate::layout::{Day, Partition, SUFFIX, Table, decoded};

/// The location of a store.
#[derive(Clone, Debug)]
pub struct Storage {
    url: ObjectStoreUrl,
    store: Arc<dyn ObjectStore>,
    root: Path,
    /// As the user specified it.
    shown: String,
    /// The directory, if it is a local store.
    local: Option<PathBuf>,
}

/// A data file from a listing.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Path, size and modification time.
    pub meta: ObjectMeta,
    /// Its partition.
    pub partition: Partition,
}

impl Listed {
    /// Name within its folder.
    pub fn name(&self) -> &str {
        self.meta.location.filename().unwrap_or_default()
    }
}

impl Storage {
    /// Opens the store `at`, a directory or the URL of an object store. Credentials are read from the
    /// environment.
    ///
    /// # Errors
    /// Returns an error if `at` is neither, or this build lacks the feature of that object store.
    pub fn open(at: &str) -> Result<Self> {
        if !at.contains("://") {
            let root = FilePath::new(at).canonicalize().with_context(|| format!("there is no store {at}"))?;
            return Ok(Self {
                url: ObjectStoreUrl::local_filesystem(),
                store: Arc::new(LocalFileSystem::new()),
                root: Path::from_absolute_path(&root).with_context(|| format!("cannot name {at}"))?,
                shown: at.to_owned(),
                local: Some(root),
            });
        }
        let url = Url::parse(at).with_context(|| format!("{at} is not a URL"))?;
        check_feature(&url)?;
        // Environment variables are upper case (AWS_ACCESS_KEY_ID), the options of object_store lower case.
        let options = std::env::vars().map(|(key, value)| (key.to_ascii_lowercase(), value));
        let (store, root) = parse_url_opts(&url, options).with_context(|| {
            format!("cannot open {at}; credentials are read from the environment, such as AWS_ACCESS_KEY_ID")
        })?;
        let server = ObjectStoreUrl::parse(&url[..Position::BeforePath])?;
        Ok(Self { url: server, store: Arc::from(store), root, shown: at.to_owned(), local: None })
    }

    /// Opens a store; creates the directory if necessary.
    ///
    /// # Errors
    /// Returns an error if it cannot be created.
    pub fn create(at: &str) -> Result<Self> {
        if !at.contains("://") {
            fs::create_dir_all(at).with_context(|| format!("cannot make the store {at}"))?;
        }
        Self::open(at)
    }

    /// The location, as the user specified it.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// URL to which paths are relative.
    pub fn url(&self) -> &ObjectStoreUrl {
        &self.url
    }

    /// The object store that reads and writes.
    pub fn object_store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Returns the path of a data file.
    pub fn path(&self, table: Table, partition: &Partition, file: &str) -> Path {
        let below = format!("{}/{}/{file}", table.name(), partition.folder());
        // Encoded folder names contain no characters that a path would change.
        below.split('/').fold(self.root.clone(), |path, part| {
            Path::parse(format!("{path}/{part}")).unwrap_or_else(|_| path.join(part))
        })
    }

    /// Returns the directory, if it is a local store.
    pub(crate) fn directory(&self) -> Option<&FilePath> {
        self.local.as_deref()
    }

    /// Returns the path of a file next to the tables.
    pub(crate) fn root_file(&self, name: &str) -> Path {
        self.root.clone().join(name)
    }

    /// Writes a file that does not exist or has the same content. The file appears atomically and survives a
    /// crash of the machine.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub async fn put(&self, path: &Path, bytes: Vec<u8>) -> Result<()> {
        let cannot = || format!("cannot write {path} in {}", self.shown);
        if self.local.is_some() {
            let to = FilePath::new("/").join(path.as_ref());
            return tokio::task::spawn_blocking(move || put_file(&to, &bytes)).await?.with_context(cannot);
        }
        self.store.put(path, bytes.into()).await.with_context(cannot)?;
        Ok(())
    }

    /// Removes a file; a missing file is not an error.
    ///
    /// # Errors
    /// Returns an error if it cannot be removed.
    pub async fn remove(&self, path: &Path) -> Result<()> {
        match self.store.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot remove {path} of {}", self.shown)),
        }
    }

    /// Lists the data files of a table, or of one partition.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read, or a file is in an unexpected folder.
    pub async fn list(&self, table: Table, partition: Option<&Partition>) -> Result<Vec<Listed>> {
        let of_table = self.root.clone().join(table.name());
        let folder = match partition {
            Some(partition) => {
                let file = self.path(table, partition, "x");
                Path::parse(file.as_ref().trim_end_matches("/x")).unwrap_or(of_table.clone())
            }
            None => of_table.clone(),
        };
        let mut listed = self.store.list(Some(&folder));
        let mut files = Vec::new();
        while let Some(meta) =
            listed.try_next().await.with_context(|| format!("cannot list {}", self.shown))?
        {
            let Some(below) = meta.location.prefix_match(&of_table) else { continue };
            let parts: Vec<String> = below.map(|part| part.as_ref().to_owned()).collect();
            let Some((file, folders)) = parts.split_last() else { continue };
            // Skip hidden files, as every engine does: caches and incomplete files.
            if parts.iter().any(|part| part.starts_with(['_', '.'])) || !file.ends_with(SUFFIX) {
                continue;
            }
            let value = |name: &str| {
                let of = |part: &String| part.strip_prefix(name)?.strip_prefix('=').map(decoded);
                folders.iter().find_map(of)
            };
            let (Some(day), Some(service)) = (value("day").as_deref().and_then(Day::parse), value("service"))
            else {
                bail!("{} is in no folder day=YYYY-MM-DD/service=NAME: move it away", meta.location);
            };
            files.push(Listed { meta, partition: Partition { day, service } });
        }
        files.sort_by(|a, b| a.meta.location.cmp(&b.meta.location));
        Ok(files)
    }

    /// Reads a file's footer and its provenance.
    ///
    /// # Errors
    /// Returns an error if it is not a complete Parquet file.
    pub async fn footer(&self, meta: &ObjectMeta) -> Result<(ArrowReaderMetadata, Provenance)> {
        let torn = || format!("{} is no whole Parquet file; move it away to read the others", meta.location);
        let footer = DFParquetMetadata::new(self.store.as_ref(), meta).fetch_metadata().await;
        let footer = ArrowReaderMetadata::try_new(footer.with_context(torn)?, ArrowReaderOptions::new());
        let footer = footer.with_context(torn)?;
        let entries = footer.metadata().file_metadata().key_value_metadata();
        let told = entries.into_iter().flatten().find(|entry| entry.key == footer::KEY);
        let told = match told.and_then(|entry| entry.value.as_deref()) {
            Some(text) => Provenance::parse(text).with_context(torn)?,
            None => Provenance::default(),
        };
        Ok((footer, told))
    }
}

/// Returns an error if this build lacks the cargo feature of the object store at `url`.
fn check_feature(url: &Url) -> Result<()> {
    let (feature, is_enabled) = match ObjectStoreScheme::parse(url) {
        Ok((ObjectStoreScheme::AmazonS3, _)) => ("aws", cfg!(feature = "aws")),
        Ok((ObjectStoreScheme::MicrosoftAzure, _)) => ("azure", cfg!(feature = "azure")),
        Ok((ObjectStoreScheme::GoogleCloudStorage, _)) => ("gcp", cfg!(feature = "gcp")),
        // `parse_url_opts` reports unsupported schemes.
        _ => return Ok(()),
    };
    if !is_enabled {
        bail!(
            "cannot open {url}: this flightline-sql was built without the feature \"{feature}\"; build it by \
             `cargo build --release --manifest-path consumer/store/Cargo.toml --target-dir target --features {feature}`"
        );
    }
    Ok(())
}

/// Maximum number of attempts while files are replaced.
pub const TRIES: usize = 10;

/// Returns true if `error` says that a file does not exist: it was replaced between the listing and the read.
/// Libraries in between preserve the text of the object store's error but not always its type.
pub fn is_gone(error: &anyhow::Error) -> bool {
    let typed = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(object_store::Error::NotFound { .. }))
    };
    let told = |cause: &(dyn std::error::Error + 'static)| {
        let text = cause.to_string();
        text.contains("Object at location") && text.contains("not found")
    };
    error.chain().any(|cause| typed(cause) || told(cause))
}

/// Retries `what` while listed files disappear before they are read.
///
/// # Errors
/// Returns any other error of `what`.
pub async fn while_files_change<T, F: Future<Output = Result<T>>>(mut what: impl FnMut() -> F) -> Result<T> {
    let mut tries = 1;
    loop {
        match what().await {
            Err(error) if tries < TRIES && is_gone(&error) => tries += 1,
            outcome => return outcome,
        }
    }
}

/// Writes a temporary file and renames it, so that the name always refers to a complete file.
fn put_file(to: &FilePath, bytes: &[u8]) -> Result<()> {
    let folder = to.parent().context("no folder")?;
    fs::create_dir_all(folder)?;
    let mut beside = tempfile::Builder::new().prefix("_").suffix(".partial").tempfile_in(folder)?;
    beside.write_all(bytes)?;
    beside.as_file().sync_all()?;
    readable(beside.as_file())?;
    beside.persist(to)?;
    // Sync the directory entry too.
    File::open(folder)?.sync_all()?;
    Ok(())
}

/// Temporary files are private to their owner; a store is also read by others, as the directory permits.
fn readable(file: &File) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;

    Ok(file.set_permissions(fs::Permissions::from_mode(0o644))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_store_without_feature_is_rejected_with_feature_name() {
        for (url, feature, is_enabled) in [
            ("s3://bucket/path", "aws", cfg!(feature = "aws")),
            ("https://s3.eu-west-1.amazonaws.com/bucket", "aws", cfg!(feature = "aws")),
            ("abfss://container@account.dfs.core.windows.net/path", "azure", cfg!(feature = "azure")),
            ("gs://bucket/path", "gcp", cfg!(feature = "gcp")),
        ] {
            let checked = check_feature(&Url::parse(url).unwrap());
            assert_eq!(checked.is_ok(), is_enabled, "{url}");
            if let Err(error) = checked {
                let command = format!("consumer/store/Cargo.toml --target-dir target --features {feature}`");
                assert!(error.to_string().contains(&command), "{error}");
            }
        }
        check_feature(&Url::parse("memory:///").unwrap()).unwrap();
    }
}
