//! Bytes that wait for something other than their client, in an unlinked temporary file.

use std::fs::File;
use std::io;
use std::rc::Rc;

use rustix::io::Errno;
use sendoff_transport::descriptors;
use sendoff_transport::descriptors::Level;

use super::segment::{FileSegment, OpenFile};

/// Makes an unlinked temporary file.
///
/// # Errors
/// The system makes no file, or descriptors are short: the last ones are for data that cannot stay
/// in memory.
pub(crate) fn temporary_file() -> io::Result<File> {
    if descriptors::level() == Level::Out {
        return Err(Errno::MFILE.into());
    }
    let file = tempfile::tempfile()?;
    descriptors::note(&file);
    Ok(file)
}

/// Grows by each [`store`](Self::store). Its blocks are freed when the last segment that names it
/// is dropped.
#[derive(Debug, Default)]
pub struct DiskStore {
    /// Made by the first bytes.
    file: Option<Rc<OpenFile>>,
    /// Bytes in the file.
    written: u64,
}

impl DiskStore {
    /// Writes bytes to the end of the file and returns the range that has them.
    ///
    /// # Errors
    /// The file cannot be made or cannot grow.
    pub fn store(&mut self, mut bytes: &[u8]) -> io::Result<FileSegment> {
        let file = match &self.file {
            Some(file) => Rc::clone(file),
            None => Rc::clone(self.file.insert(OpenFile::new(temporary_file()?.into()))),
        };
        let (offset, len) = (self.written, bytes.len() as u64);
        let descriptor = file.descriptor().ok_or(Errno::BADF)?;
        while !bytes.is_empty() {
            let at = self.written;
            match rustix::io::retry_on_intr(|| rustix::io::pwrite(&descriptor, bytes, at))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => {
                    self.written += written as u64;
                    bytes = &bytes[written..];
                }
            }
        }
        Ok(FileSegment { file, offset, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_their_bytes_and_share_one_file() {
        let mut disk = DiskStore::default();
        let long = "long ".repeat(20_000);
        let mut ranges = ["one", &long, "", "two"].map(|text| disk.store(text.as_bytes()).unwrap());
        drop(disk);
        assert!(ranges.iter().all(|range| Rc::ptr_eq(&range.file, &ranges[0].file)));
        let read = ranges.each_mut().map(|range| range.read(1 << 20).unwrap());
        assert_eq!(read, ["one", &long, "", "two"].map(str::as_bytes));
    }
}
