// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The columns of a row: how a field of a record is written, and how it is read again.
//!
//! SQLite's integers are signed: a `u64` of 2^63 and more is stored as a negative number and comes back unchanged. A
//! file can be damaged, or made by another program: whatever does not fit is an error that names the table, the row
//! and the column, never a panic and never a silent 0.

use deburr_core::sqlite::Value;
use std::borrow::Cow;

/// The error for a cell that does not have the type of its column.
#[derive(Debug)]
pub(super) struct CellError {
    /// What was wrong: ``table `blame`, row 17, column 3: expected an integer``.
    pub(super) message: String,
}

pub(super) type Result<T> = std::result::Result<T, CellError>;

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// Type: `INTEGER`, `TEXT` or `BLOB`. `BLOB_OF_3` is a packed list of lists of three numbers each
    /// ([`packed`](super::packed)), `BLOB_OF_ZLIB` is compressed text.
    pub(crate) kind: &'static str,
    /// Whether no cell may be NULL.
    pub(crate) required: bool,
    /// Whether its text is JSON.
    pub(crate) json: bool,
}

impl Column {
    pub(super) fn new(name: &'static str, kind: &'static str) -> Self {
        Self { name, kind, required: true, json: false }
    }

    pub(super) fn or_null(name: &'static str, kind: &'static str) -> Self {
        Self { name, kind, required: false, json: false }
    }

    /// A column whose text is JSON.
    pub(super) fn json(name: &'static str, required: bool) -> Self {
        Self { name, kind: "TEXT", required, json: true }
    }
}

/// A cell to be written. Text is borrowed from the record where possible.
#[derive(Clone, Debug)]
pub(super) enum Cell<'a> {
    Null,
    Integer(i64),
    Text(Cow<'a, str>),
    Blob(Vec<u8>),
}

/// Reads the cells of a row from left to right.
pub(super) struct Cells<'a> {
    table: &'static str,
    seq: i64,
    cells: Vec<Value<'a>>,
    column: usize,
}

impl<'a> Cells<'a> {
    /// The cells of a row after its `seq`.
    pub(super) fn new(table: &'static str, seq: i64, cells: Vec<Value<'a>>) -> Self {
        Self { table, seq, cells, column: 0 }
    }

    pub(super) fn damage(&self, what: &str) -> CellError {
        let (table, seq, column) = (self.table, self.seq, self.column);
        CellError { message: format!("table `{table}`, row {seq}, column {column}: {what}") }
    }

    /// All cells, read or not.
    pub(super) fn all(&self) -> &[Value<'a>] {
        &self.cells
    }

    /// The next cell.
    pub(super) fn next(&mut self) -> Result<Value<'a>> {
        self.column += 1;
        let cell = self.cells.get(self.column - 1).copied();
        cell.ok_or_else(|| self.damage("the column is missing"))
    }

    /// Reads the next cells, as many as a `T` has.
    pub(super) fn read<T: Columns>(&mut self) -> Result<T> {
        T::read(self)
    }
}

/// A value that is stored in one or several adjacent columns of a row.
pub(super) trait Columns: Sized {
    /// Adds its columns. `name` is the name of the field, and of the column if there is only one.
    fn columns(name: &'static str, to: &mut Vec<Column>);

    /// Adds its cells, one for each column.
    fn write<'a>(&'a self, to: &mut Vec<Cell<'a>>);

    /// Reads its cells.
    fn read(cells: &mut Cells<'_>) -> Result<Self>;
}

/// A value that is stored in one cell. An `Option` of it is NULL if it is `None`.
pub(super) trait Scalar: Sized {
    /// Type of its column.
    const KIND: &'static str;
    /// What a cell must hold, for the message about damage.
    const EXPECTED: &'static str;

    fn cell(&self) -> Cell<'_>;

    /// `None` if the cell holds something else.
    fn of(value: Value<'_>) -> Option<Self>;
}

impl<T: Scalar> Columns for T {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        to.push(Column::new(name, T::KIND));
    }

    fn write<'a>(&'a self, to: &mut Vec<Cell<'a>>) {
        to.push(self.cell());
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        let value = cells.next()?;
        let null = if value == Value::Null { ", found NULL" } else { "" };
        T::of(value).ok_or_else(|| cells.damage(&format!("expected {}{null}", T::EXPECTED)))
    }
}

impl<T: Scalar> Columns for Option<T> {
    fn columns(name: &'static str, to: &mut Vec<Column>) {
        to.push(Column::or_null(name, T::KIND));
    }

    fn write<'a>(&'a self, to: &mut Vec<Cell<'a>>) {
        to.push(self.as_ref().map_or(Cell::Null, Scalar::cell));
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        match cells.next()? {
            Value::Null => Ok(None),
            value => match T::of(value) {
                Some(value) => Ok(Some(value)),
                None => Err(cells.damage(&format!("expected {}", T::EXPECTED))),
            },
        }
    }
}

/// A way to store a field that may differ from that of its type.
pub(super) trait StoredAs<T> {
    fn columns(name: &'static str, to: &mut Vec<Column>);
    fn write<'a>(value: &'a T, to: &mut Vec<Cell<'a>>);
    fn read(cells: &mut Cells<'_>) -> Result<T>;
}

/// Adds the columns of one field of an `S`; the compiler infers the type of the field.
pub(super) fn of_field<S, T, V: StoredAs<T>>(
    _field: fn(&S) -> &T,
    name: &'static str,
    to: &mut Vec<Column>,
) {
    V::columns(name, to);
}

/// Declares the columns of structs, in order. Each is a field; `field = "column"` where the column has another name,
/// `field: Way` where the field is stored in another way ([`StoredAs`]) than its type. `over tick` stands for the fields
/// `t0_ns` and `t1_ns`, which many rows share. The comment of a field is the meaning of its column in the document of the
/// format; where it has several columns, each begins with `` `column`: ``.
macro_rules! columns {
    ($($type:ident $(over $tick:ident)? {
        $($(#[doc = $meaning:literal])* $field:ident $(= $column:literal)? $(: $way:ty)?),* $(,)?
    })*) => {$(
        impl $crate::store::column::Columns for $type {
            fn columns(_: &'static str, to: &mut Vec<$crate::store::column::Column>) {
                $( $crate::store::column::tick!($tick, to); )?
                $(
                    let name = $crate::store::column::name!($field $($column)?);
                    $crate::store::column::of_field::<
                        Self, _, $crate::store::column::way!($($way)?)
                    >(|it| &it.$field, name, to);
                )*
            }

            fn write<'a>(&'a self, to: &mut Vec<$crate::store::column::Cell<'a>>) {
                $(
                    <$crate::store::column::way!($($way)?) as $crate::store::column::StoredAs<_>>
                        ::write(&self.$field, to);
                )*
            }

            fn read(
                cells: &mut $crate::store::column::Cells<'_>,
            ) -> $crate::store::column::Result<Self> {
                Ok(Self {
                    $(
                        t0_ns: $crate::store::column::bound!($tick, cells),
                        t1_ns: $crate::store::column::bound!($tick, cells),
                    )?
                    $(
                        $field: <
                            $crate::store::column::way!($($way)?) as $crate::store::column::StoredAs<_>
                        >::read(cells)?,
                    )*
                })
            }
        }

        #[cfg(test)]
        impl $crate::store::tests::Documented for $type {
            fn fields() -> Vec<$crate::store::tests::Field> {
                vec![$({
                    let mut columns = Vec::new();
                    let name = $crate::store::column::name!($field $($column)?);
                    $crate::store::column::of_field::<
                        Self, _, $crate::store::column::way!($($way)?)
                    >(|it| &it.$field, name, &mut columns);
                    $crate::store::tests::Field { columns, meaning: &[$($meaning),*] }
                }),*]
            }
        }

        #[cfg(test)]
        impl $crate::store::tests::Sample for $type {
            fn sample(rng: &mut proptest::test_runner::TestRng) -> Self {
                use $crate::store::tests::Sample;
                $( let bounds = $crate::store::column::bound!($tick of rng); )?
                Self {
                    $(
                        t0_ns: $crate::store::column::bound!($tick = bounds.0),
                        t1_ns: $crate::store::column::bound!($tick = bounds.1),
                    )?
                    $( $field: Sample::sample(rng), )*
                }
            }
        }
    )*};
}

/// The name of a field's column.
macro_rules! name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $column:literal) => {
        $column
    };
}

/// The way in which a field is stored.
macro_rules! way {
    () => {
        $crate::store::encodings::AsColumns
    };
    ($way:ty) => {
        $way
    };
}

/// Adds the column that refers to a time range.
macro_rules! tick {
    (tick, $to:ident) => {
        $to.push($crate::store::table::TICK)
    };
}

/// A bound of that time range: read or, in tests, generated.
macro_rules! bound {
    (tick, $cells:ident) => {
        $cells.read()?
    };
    (tick of $rng:ident) => {
        $crate::store::tests::range($rng)
    };
    (tick = $bounds:ident.$at:tt) => {
        $bounds.$at
    };
}

pub(super) use {bound, columns, name, tick, way};
