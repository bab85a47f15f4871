// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parsers of the kernel's text files: `&str` in, typed values out, errors with file, line and item.
