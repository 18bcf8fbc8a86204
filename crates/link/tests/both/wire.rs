//! One direction of a link: bytes, and descriptors that arrive with the first byte of their
//! message.

use std::collections::VecDeque;

use bytes::BytesMut;

pub(crate) struct Pipe {
    bytes: VecDeque<u8>,
    descriptors: VecDeque<(u64, u32)>,
    capacity: usize,
    sent: u64,
    received: u64,
}

impl Pipe {
    pub(crate) fn new(capacity: usize) -> Self {
        let (bytes, descriptors) = (VecDeque::new(), VecDeque::new());
        Self { bytes, descriptors, capacity, sent: 0, received: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes some of the bytes, and the descriptors if it takes any byte.
    pub(crate) fn send(&mut self, bytes: &[u8], descriptors: &[u32]) -> usize {
        let n = bytes.len().min(self.capacity - self.bytes.len());
        if n > 0 {
            self.descriptors.extend(descriptors.iter().map(|fd| (self.sent, *fd)));
        }
        self.bytes.extend(&bytes[..n]);
        self.sent += n as u64;
        n
    }

    /// Takes all bytes or none, as the kernel does with small messages.
    pub(crate) fn send_whole(&mut self, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= self.capacity - self.bytes.len();
        if fits {
            self.send(bytes, &[]);
        }
        fits
    }

    pub(crate) fn receive(&mut self, most: usize, buf: &mut BytesMut, fds: &mut VecDeque<u32>) {
        let n = most.min(self.bytes.len());
        buf.extend(self.bytes.drain(..n));
        self.received += n as u64;
        while let Some((_, fd)) = self.descriptors.front().filter(|(at, _)| *at < self.received) {
            fds.push_back(*fd);
            self.descriptors.pop_front();
        }
    }
}
