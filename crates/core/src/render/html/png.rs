// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small images of one colour in sixteen strengths, as PNG (ISO/IEC 15948) within the page. Transparent where there is
//! nothing, so that they follow the theme of the page. Not compressed: an image has a few kB.

use super::base64;

/// Strengths of a pixel: 0 = nothing.
pub(super) const LEVELS: u8 = 16;
/// Maximum length of a stored block of a zlib stream (RFC 1951).
const BLOCK: usize = 0xffff;

/// An image of `width` columns as the address of an `image` element. `pixels` are levels below [`LEVELS`], row by row.
pub(super) fn data_address(width: u32, pixels: &[u8], colour: [u8; 3]) -> String {
    format!("data:image/png;base64,{}", base64(&png(width, pixels, colour)))
}

fn png(width: u32, pixels: &[u8], colour: [u8; 3]) -> Vec<u8> {
    let columns = width.max(1) as usize;
    let height = pixels.len().div_ceil(columns) as u32;
    let mut header = Vec::new();
    header.extend(width.max(1).to_be_bytes());
    header.extend(height.to_be_bytes());
    // Four bits for each pixel, from a palette; the usual compression and filters; not interlaced.
    header.extend([4, 3, 0, 0, 0]);
    let palette: Vec<u8> = (0..LEVELS).flat_map(|_| colour).collect();
    // The first step is already visible.
    let opacity: Vec<u8> =
        (0..LEVELS).map(|level| if level == 0 { 0 } else { 30 + level * 15 }).collect();
    let mut rows = Vec::new();
    for row in pixels.chunks(columns) {
        // No filter.
        rows.push(0);
        rows.extend(row.chunks(2).map(|pair| {
            let of = |i: usize| pair.get(i).map_or(0, |level| level & (LEVELS - 1));
            of(0) << 4 | of(1)
        }));
        // A row that is cut short is nothing to its end.
        rows.resize(rows.len() + columns.div_ceil(2) - row.len().div_ceil(2), 0);
    }
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in [
        (b"IHDR", header),
        (b"PLTE", palette),
        (b"tRNS", opacity),
        (b"IDAT", zlib(&rows)),
        (b"IEND", vec![]),
    ] {
        chunk(&mut file, kind, &data);
    }
    file
}

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    file.extend((data.len() as u32).to_be_bytes());
    let from = file.len();
    file.extend(kind);
    file.extend(data);
    let check = crc32(&file[from..]);
    file.extend(check.to_be_bytes());
}

/// A zlib stream (RFC 1950) of stored blocks.
fn zlib(data: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let mut blocks = data.chunks(BLOCK).peekable();
    while let Some(block) = blocks.next() {
        stream.push(u8::from(blocks.peek().is_none()));
        // At most BLOCK.
        let length = block.len() as u16;
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend(block);
    }
    stream.extend(adler32(data).to_be_bytes());
    stream
}

fn crc32(data: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 };
    !data.iter().fold(!0, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), step))
}

fn adler32(data: &[u8]) -> u32 {
    let (a, b) = data.iter().fold((1u32, 0u32), |(a, b), &byte| {
        let a = (a + u32::from(byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_those_of_the_standards() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }

    #[test]
    fn an_image_has_its_size_and_its_pixels() {
        let file = png(3, &[1, 2, 3, 4, 5, 6], [1, 2, 3]);
        assert_eq!(file[16..24], [0, 0, 0, 3, 0, 0, 0, 2]);
        let at = file.windows(4).position(|it| it == b"IDAT").unwrap() + 4;
        // The header of the stream, that of its only block, and the rows: no filter, two pixels in each byte.
        assert_eq!(file[at..at + 13], [0x78, 1, 1, 6, 0, 0xf9, 0xff, 0, 0x12, 0x30, 0, 0x45, 0x60]);
        assert!(file.ends_with(b"IEND\xae\x42\x60\x82"));
        let long = png(1000, &[7; 1000 * 300], [0; 3]);
        assert!(long.len() > 150_000, "more than one block: {}", long.len());
    }
}
