//! One record as RocketMQ lays it out; all integers big-endian. See
//! `lakelog/format/layout.py`.

pub const BLANK_BYTES: usize = 8;
const AT_BODY_CRC: usize = 8;
const AT_QUEUE_ID: usize = 12;
const AT_QUEUE_OFFSET: usize = 20;
const AT_BORN_HOST: usize = 48;
const SEAL: &[u8] = b"__CRC32#\x010000000000\x02";
const SEAL_DIGITS_AT: usize = 9;
const MASK: u32 = 0x7fff_ffff;
pub const PREPARED: i32 = 0x4;
const HOST_BITS: i64 = 0x30;

/// The two hosts of a record, as bytes.
pub struct Hosts {
    pub born: Vec<u8>,
    pub store: Vec<u8>,
    pub sys_flag: i32,
}

impl Hosts {
    pub fn head_bytes(&self) -> usize {
        AT_BORN_HOST + self.born.len() + 8 + self.store.len() + 16
    }

    fn store_time_at(&self) -> usize {
        AT_BORN_HOST + self.born.len()
    }
}

/// The property string of a message: encoded by Python, or of plain tags and keys.
#[derive(Clone, Copy)]
pub enum Properties<'a> {
    Plain { tags: Option<&'a [u8]>, keys: Option<&'a [u8]> },
    Encoded(&'a [u8]),
}

/// The fields of a message, borrowed from its objects.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    pub body: &'a [u8],
    pub properties: Properties<'a>,
    pub queue: i32,
    pub flag: i32,
    pub sys_flag: i64,
    pub born: i64,
    pub reconsumed: i32,
    pub prepared: i64,
}

impl Fields<'_> {
    fn property_bytes(&self, sealed: bool) -> usize {
        let of = |text: Option<&[u8]>| text.map_or(0, |text| text.len() + 6);
        let length = match self.properties {
            Properties::Plain { tags, keys } => of(tags) + of(keys),
            Properties::Encoded(text) => text.len() + usize::from(sealed && is_unended(text)),
        };
        length + if sealed { SEAL.len() } else { 0 }
    }

    /// System flags as in the record; `None` if they do not fit.
    pub fn flags(&self, hosts: &Hosts) -> Option<i32> {
        let flags = i32::try_from(self.sys_flag & !HOST_BITS).ok()?;
        Some(flags | hosts.sys_flag)
    }
}

/// Whether `text` does not end with the separator that another property needs before it.
fn is_unended(text: &[u8]) -> bool {
    text.last().is_some_and(|&last| last != 2)
}

/// Length of the whole record.
pub fn size(fields: &Fields<'_>, hosts: &Hosts, topic: &[u8], sealed: bool) -> usize {
    hosts.head_bytes() + fields.body.len() + topic.len() + 2 + fields.property_bytes(sealed)
}

/// Write the record to `out`, which has its length, without the fields that depend on its place.
///
/// The body may be memory that others write to meanwhile: it is read once, and the checksum is that
/// of the copy.
pub fn write(
    out: &mut [u8],
    fields: &Fields<'_>,
    flags: i32,
    hosts: &Hosts,
    magic: u32,
    topic: &[u8],
    sealed: bool,
) {
    let size = out.len() as u32;
    let mut at = 0;
    let mut add = |bytes: &[u8]| {
        out[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    let mut head = [0u8; AT_BORN_HOST];
    head[0..4].copy_from_slice(&size.to_be_bytes());
    head[4..8].copy_from_slice(&magic.to_be_bytes());
    head[12..16].copy_from_slice(&fields.queue.to_be_bytes());
    head[16..20].copy_from_slice(&fields.flag.to_be_bytes());
    head[36..40].copy_from_slice(&flags.to_be_bytes());
    head[40..48].copy_from_slice(&fields.born.to_be_bytes());
    add(&head);
    add(&hosts.born);
    add(&[0; 8]);
    add(&hosts.store);
    add(&fields.reconsumed.to_be_bytes());
    add(&fields.prepared.to_be_bytes());
    add(&(fields.body.len() as u32).to_be_bytes());
    add(fields.body);
    add(topic);
    add(&(fields.property_bytes(sealed) as u16).to_be_bytes());
    match fields.properties {
        Properties::Plain { tags, keys } => {
            for (name, value) in [(&b"TAGS\x01"[..], tags), (&b"KEYS\x01"[..], keys)] {
                if let Some(value) = value {
                    add(name);
                    add(value);
                    add(b"\x02");
                }
            }
        }
        Properties::Encoded(text) => {
            add(text);
            if sealed && is_unended(text) {
                add(b"\x02");
            }
        }
    }
    if sealed {
        add(SEAL);
    }
    let body_at = hosts.head_bytes();
    let crc = crc32fast::hash(&out[body_at..body_at + fields.body.len()]) & MASK;
    out[AT_BODY_CRC..AT_BODY_CRC + 4].copy_from_slice(&crc.to_be_bytes());
}

/// Fill in the queue of a record that was written without one.
pub fn set_queue(record: &mut [u8], queue: i32) {
    record[AT_QUEUE_ID..AT_QUEUE_ID + 4].copy_from_slice(&queue.to_be_bytes());
}

/// Fill in the fields that depend on the place, the record checksum last.
pub fn place(record: &mut [u8], hosts: &Hosts, queue_offset: i64, at: i64, now: i64, sealed: bool) {
    let stored = hosts.store_time_at();
    record[AT_QUEUE_OFFSET..AT_QUEUE_OFFSET + 8].copy_from_slice(&queue_offset.to_be_bytes());
    record[AT_QUEUE_OFFSET + 8..AT_QUEUE_OFFSET + 16].copy_from_slice(&at.to_be_bytes());
    record[stored..stored + 8].copy_from_slice(&now.to_be_bytes());
    if sealed {
        let (covered, seal) = record.split_at_mut(record.len() - SEAL.len());
        let mut crc = crc32fast::hash(covered) & MASK;
        for digit in &mut seal[SEAL_DIGITS_AT..SEAL.len() - 1] {
            *digit = b'0' + (crc % 10) as u8; // the least significant first
            crc /= 10;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Hosts {
        Hosts { born: vec![127, 0, 0, 1, 0, 0, 42, 159], store: vec![1; 20], sys_flag: 0x20 }
    }

    fn fields() -> Fields<'static> {
        Fields {
            body: b"body",
            properties: Properties::Plain { tags: Some(b"t"), keys: None },
            queue: 3,
            flag: -1,
            sys_flag: 0x30,
            born: 5,
            reconsumed: 0,
            prepared: 0,
        }
    }

    #[test]
    fn a_record_fills_its_length_and_is_sealed_over_all_before_the_seal() {
        let (hosts, fields) = (hosts(), fields());
        let flags = fields.flags(&hosts).unwrap();
        assert_eq!(flags, 0x20); // the hosts decide
        let mut out = vec![0xff; size(&fields, &hosts, b"\x01a", true)];
        write(&mut out, &fields, flags, &hosts, 7, b"\x01a", true);
        place(&mut out, &hosts, 9, 1000, 77, true);
        let cut = out.len() - SEAL.len();
        let crc = crc32fast::hash(&out[..cut]) & MASK;
        let digits: String = format!("{crc:010}").chars().rev().collect();
        assert_eq!(&out[cut + SEAL_DIGITS_AT..out.len() - 1], digits.as_bytes());
        assert_eq!(&out[20..36], [9i64.to_be_bytes(), 1000i64.to_be_bytes()].concat());
        assert_eq!(&out[56..64], 77i64.to_be_bytes());
        assert_eq!(out[out.len() - 1], 2);
    }

    #[test]
    fn encoded_properties_are_ended_before_the_seal() {
        let hosts = hosts();
        for (text, end) in [(&b"a\x01b"[..], &b"a\x01b\x02__CRC32#"[..]), (b"", b"__CRC32#")] {
            let fields = Fields { properties: Properties::Encoded(text), ..fields() };
            let mut out = vec![0; size(&fields, &hosts, b"\x01a", true)];
            write(&mut out, &fields, 0, &hosts, 7, b"\x01a", true);
            assert_eq!(&out[out.len() - 12 - end.len()..][..end.len()], end);
        }
    }

    #[test]
    fn flags_that_do_not_fit_are_not_judged_here() {
        let fields = Fields { sys_flag: 1 << 40, ..fields() };
        assert_eq!(fields.flags(&hosts()), None);
    }
}
