//! Shared regions: memory from which the front sends body bytes. Each link has one; its chunks are
//! lent to the front, which returns them. The worker never waits for a chunk: if none is free,
//! bytes go over the link.

use std::io;
use std::os::fd::OwnedFd;

use sendoff_fastcgi::region::{DATA_AT, Layout, RETURNS_AT};
use sendoff_link::worker::{Chunks, Queue};
use sendoff_sys::shared::{Shape, Writer};

use crate::log;

/// About the size of a UNIX socket's buffer or an L2 cache; smaller chunks need more records.
const CHUNK_SIZE: u32 = 64 * 1024;

/// 4 MiB: with 256 KiB that each slow client may keep in the front's send queue, room for a dozen
/// of them.
const CHUNKS: u32 = 64;

/// The region of one link.
#[derive(Debug)]
pub(crate) struct Region {
    memory: Writer,
    chunks: Chunks,
}

impl Region {
    fn make() -> io::Result<Self> {
        let layout = Layout::new(CHUNK_SIZE, CHUNKS).map_err(io::Error::other)?;
        let shape = Shape {
            counters_at: RETURNS_AT,
            counters: CHUNKS,
            data_at: DATA_AT,
            data_len: layout.data_len(),
        };
        let memory = Writer::create(shape, &layout.encode())?;
        Ok(Self { memory, chunks: Chunks::new(layout) })
    }

    /// The descriptor that travels with `REGION`.
    pub(crate) fn fd(&self) -> &OwnedFd {
        self.memory.fd()
    }
}

/// The regions of all links.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    of_links: Vec<Option<Region>>,
    /// Memory could not be allocated once: since then all bytes go over the links.
    failed: bool,
}

impl Regions {
    /// The link's region, if it has been created.
    pub(crate) fn get(&self, link: usize) -> Option<&Region> {
        self.of_links.get(link)?.as_ref()
    }

    fn get_mut(&mut self, link: usize) -> Option<&mut Region> {
        self.of_links.get_mut(link)?.as_mut()
    }

    fn get_or_make(&mut self, link: usize) -> Option<&mut Region> {
        if self.failed {
            return None;
        }
        if self.of_links.len() <= link {
            self.of_links.resize_with(link + 1, || None);
        }
        let slot = &mut self.of_links[link];
        if slot.is_none() {
            match Region::make() {
                Ok(region) => *slot = Some(region),
                Err(error) => {
                    log(format_args!("no memory to share with the front: {error}"));
                    self.failed = true;
                }
            }
        }
        slot.as_mut()
    }

    /// Copies body bytes into chunks of the link's region and queues the pieces. Returns the bytes
    /// for which no chunk was free.
    pub(crate) fn lend<'d>(
        &mut self,
        link: usize,
        request_id: u16,
        queue: &mut Queue,
        mut data: &'d [u8],
    ) -> &'d [u8] {
        let Some(Region { memory, chunks }) = self.get_or_make(link) else { return data };
        while !data.is_empty()
            && let Some(range) =
                chunks.lend(queue, request_id, data.len(), |chunk| memory.counter(chunk))
        {
            let (now, later) = data.split_at(range.len());
            memory.write(range.start, now);
            data = later;
        }
        data
    }

    /// The response has ended: lends the partly filled chunk to the front as it is.
    pub(crate) fn end_pieces(&mut self, link: usize, queue: &mut Queue) {
        if let Some(region) = self.get_mut(link) {
            region.chunks.end(queue);
        }
    }
}
