//! Finds the parts of one record without trusting its bytes, and checks it: as
//! `lakelog/format/record.py`.
//!
//! Other processes may write to the bytes. Each value is read once, and that value is
//! used; every access is bounds-checked.

pub const RECORD_MIN_BYTES: usize = 91;
pub const MAGIC_V1: u32 = 0xDAA3_20A7;
pub const MAGIC_V2: u32 = 0xDAA3_20AB;
pub const AT_BORN_HOST: usize = 48;
const BORN_HOST_V6: i32 = 0x10;
const STORE_HOST_V6: i32 = 0x20;
const SUFFIX_BYTES: usize = 16;
const LENGTHS_BYTES: usize = 3;
pub const HEAD_BYTES: usize = AT_BORN_HOST + 20 + 8 + 20 + SUFFIX_BYTES;
const SEAL_START: &[u8] = b"__CRC32#\x01";
const SEAL_BYTES: usize = 20;
const MASK: u32 = 0x7fff_ffff;
const SECTOR_BYTES: i64 = 512;

/// A copy of the first bytes of a record; missing bytes are zero.
pub struct Head([u8; HEAD_BYTES]);

impl Head {
    #[inline(always)]
    pub fn of(data: &[u8]) -> Head {
        let mut copy = [0; HEAD_BYTES];
        let length = data.len().min(HEAD_BYTES);
        copy[..length].copy_from_slice(&data[..length]);
        // A copy, so that no byte is read twice.
        Head(std::hint::black_box(copy))
    }

    #[inline(always)]
    pub fn int(&self, at: usize) -> i32 {
        i32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    #[inline(always)]
    pub fn long(&self, at: usize) -> i64 {
        (self.int(at) as i64) << 32 | self.int(at + 4) as u32 as i64
    }

    #[inline(always)]
    pub fn bytes(&self, start: usize, end: usize) -> &[u8] {
        &self.0[start..end]
    }

    #[inline(always)]
    pub fn size(&self) -> i32 {
        self.int(0)
    }

    #[inline(always)]
    pub fn magic(&self) -> u32 {
        self.int(4) as u32
    }

    #[inline(always)]
    pub fn body_crc(&self) -> u32 {
        self.int(8) as u32
    }

    #[inline(always)]
    pub fn physical_offset(&self) -> i64 {
        self.long(28)
    }

    #[inline(always)]
    pub fn sys_flag(&self) -> i32 {
        self.int(36)
    }
}

/// The store time in ms by the head of a record, as `lakelog/format/record.py`; `None` if the
/// head does not state a record of `size` bytes at `offset`.
pub fn stated_time(head: &Head, offset: i64, size: i32) -> Option<i64> {
    let is_meant = head.size() == size
        && size >= RECORD_MIN_BYTES as i32
        && head.physical_offset() == offset
        && [MAGIC_V1, MAGIC_V2].contains(&head.magic());
    let host = if head.sys_flag() & BORN_HOST_V6 != 0 { 20 } else { 8 };
    is_meant.then(|| head.long(AT_BORN_HOST + host))
}

/// The parts of a record, in bytes from its start. The body ends one or two bytes before the topic,
/// and the topic two bytes before the properties, which end with the record.
pub struct Frame {
    pub stored_at: usize,
    pub body_at: usize,
    pub body_end: usize,
    pub topic_at: usize,
    pub properties_at: usize,
}

impl Frame {
    pub fn topic_end(&self) -> usize {
        self.properties_at - 2
    }

    /// `None` if the lengths are inconsistent. `record` has the size in `head`.
    #[inline(always)]
    pub fn read(head: &Head, record: &[u8]) -> Option<Frame> {
        let end = record.len();
        let magic = head.magic();
        if end < RECORD_MIN_BYTES || (magic != MAGIC_V1 && magic != MAGIC_V2) {
            return None;
        }
        let wide = (magic == MAGIC_V2) as usize;
        let flags = head.sys_flag();
        let host = |v6: i32| if flags & v6 != 0 { 20 } else { 8 };
        let stored_at = AT_BORN_HOST + host(BORN_HOST_V6);
        let body_at = stored_at + 8 + host(STORE_HOST_V6) + SUFFIX_BYTES;
        if body_at + wide + LENGTHS_BYTES > end {
            return None;
        }
        let body_end = body_at + usize::try_from(head.int(body_at - 4)).ok()?;
        let topic_at = body_end + 1 + wide;
        if topic_at + 2 > end {
            return None;
        }
        let mut topic = record[topic_at - 1] as usize;
        if wide == 1 {
            topic += (record[topic_at - 2] as usize) << 8;
        }
        let properties_at = topic_at + topic + 2;
        if properties_at > end {
            return None;
        }
        let stated = i16::from_be_bytes([record[properties_at - 2], record[properties_at - 1]]);
        let fills = usize::try_from(stated).ok()? == end - properties_at;
        fills.then_some(Frame { stored_at, body_at, body_end, topic_at, properties_at })
    }

    /// Whether the topic is UTF-8.
    #[inline(always)]
    pub fn has_text(&self, record: &[u8]) -> bool {
        let topic = &record[self.topic_at..self.topic_end()];
        topic.is_ascii() || std::str::from_utf8(topic).is_ok()
    }

    /// Whether the record ends with a record checksum, which may be wrong.
    #[inline(always)]
    pub fn is_sealed(&self, record: &[u8]) -> bool {
        let properties = &record[self.properties_at..];
        properties.len() >= SEAL_BYTES
            && properties[properties.len() - SEAL_BYTES..].starts_with(SEAL_START)
    }

    /// Whether the checksums match, and no lost sector overlaps the text.
    ///
    /// `offset` is the record's place in the log, which it must contain.
    #[inline(always)]
    pub fn holds(&self, head: &Head, record: &[u8], offset: i64) -> bool {
        crc32fast::hash(&record[self.body_at..self.body_end]) & MASK == head.body_crc()
            && (!self.is_sealed(record) || seal_holds(record))
            && !self.lost_text(record, offset)
    }

    /// As `lakelog/format/record.py`.
    #[inline(always)]
    fn lost_text(&self, record: &[u8], offset: i64) -> bool {
        let topic = &record[self.topic_at..self.topic_end()];
        let properties = &record[self.properties_at..];
        if !has_zero(topic) && !has_zero(properties) {
            return false;
        }
        if properties.last().or(topic.last()) == Some(&0) {
            return true;
        }
        let topic_at = self.topic_at as i64;
        let first = topic_at - offset.wrapping_add(topic_at).rem_euclid(SECTOR_BYTES);
        (first..record.len() as i64)
            .step_by(SECTOR_BYTES as usize)
            .any(|start| self.is_lost(record, start))
    }

    /// Whether all of the record is zero in the sector from `start` on, and some of that is text.
    fn is_lost(&self, record: &[u8], start: i64) -> bool {
        let stop = ((start + SECTOR_BYTES) as usize).min(record.len());
        let start = start.max(0) as usize;
        let is_length = start >= self.topic_end() && stop <= self.properties_at;
        if start >= stop || stop <= self.topic_at || is_length {
            return false;
        }
        record[start..stop].iter().all(|&byte| byte == 0)
    }
}

#[inline(always)]
fn has_zero(text: &[u8]) -> bool {
    // Without an early end, so that the compiler uses vectors: nearly all texts have no zero.
    text.iter().fold(false, |found, &byte| found | (byte == 0))
}

fn seal_holds(record: &[u8]) -> bool {
    let (covered, seal) = record.split_at(record.len() - SEAL_BYTES);
    let mut crc = crc32fast::hash(covered) & MASK;
    let (digits, end) = seal[SEAL_START.len()..].split_at(SEAL_BYTES - SEAL_START.len() - 1);
    let hold = digits.iter().all(|&digit| {
        let good = digit == b'0' + (crc % 10) as u8; // the least significant first
        crc /= 10;
        good
    });
    hold && end == [2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(topic: &[u8], properties: &[u8], offset: i64) -> Vec<u8> {
        let mut made = vec![0; AT_BORN_HOST + 40];
        made[4..8].copy_from_slice(&MAGIC_V1.to_be_bytes());
        made[28..36].copy_from_slice(&offset.to_be_bytes());
        made[84..88].copy_from_slice(&4u32.to_be_bytes());
        made.extend(b"body");
        made.push(topic.len() as u8);
        made.extend(topic);
        made.extend((properties.len() as u16).to_be_bytes());
        made.extend(properties);
        let size = made.len() as u32;
        made[0..4].copy_from_slice(&size.to_be_bytes());
        made[8..12].copy_from_slice(&(crc32fast::hash(b"body") & MASK).to_be_bytes());
        made
    }

    fn is_whole(record: &[u8], offset: i64) -> bool {
        let head = Head::of(record);
        Frame::read(&head, record)
            .is_some_and(|frame| frame.has_text(record) && frame.holds(&head, record, offset))
    }

    #[test]
    fn a_whole_record_and_its_parts() {
        let made = record(b"topic", b"a\x01b\x02", 7);
        let frame = Frame::read(&Head::of(&made), &made).unwrap();
        assert_eq!(&made[frame.body_at..frame.body_end], b"body");
        assert_eq!(&made[frame.topic_at..frame.topic_end()], b"topic");
        assert_eq!(&made[frame.properties_at..], b"a\x01b\x02");
        assert!(is_whole(&made, 7));
    }

    #[test]
    fn no_byte_makes_it_panic() {
        let good = record(b"topic", b"__CRC32#\x010000000000\x02", 7);
        for at in 0..good.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                is_whole(&bad, i64::MAX);
                is_whole(&bad[..at], i64::MIN);
            }
        }
    }

    #[test]
    fn a_sector_of_zeros_in_the_text_was_lost() {
        let mut made = record(b"topic", &[b'x'; 2000], 100);
        assert!(is_whole(&made, 100));
        made[1024 - 100..1536 - 100].fill(0);
        assert!(!is_whole(&made, 100));
        made[1300] = b'x';
        assert!(is_whole(&made, 100));
    }
}
