// SPDX-License-Identifier: GPL-2.0-only

//! Things with numbers: a new one gets the lowest number that is free, as in C (`idr_alloc`).

use kernel::prelude::*;

/// Things, by number.
pub(super) struct HandleTable<T> {
    places: KVVec<Option<T>>,
    /// No place below it is free.
    first_free: usize,
}

/// A place that is free and kept for somebody: only while the table is not touched otherwise.
pub(super) struct TablePlace(usize);

impl<T> HandleTable<T> {
    /// Numbers that a handle can carry.
    const MAX: usize = i32::MAX as usize;

    /// Numbers that somebody may give: the memory for all below is taken.
    pub(super) const MOST_GIVEN: usize = 1 << 20;

    /// Nothing.
    pub(super) fn new() -> Self {
        Self {
            places: KVVec::new(),
            first_free: 0,
        }
    }

    /// Finds a free place and the memory for it. `ENOSPC`: all numbers are in use.
    pub(super) fn reserve(&mut self) -> Result<TablePlace> {
        let mut after = self.places.iter().enumerate().skip(self.first_free);
        let free = after
            .find(|(_, place)| place.is_none())
            .map(|(index, _)| index);
        let index = free.unwrap_or(self.places.len());
        if index >= Self::MAX {
            return Err(ENOSPC);
        }
        if free.is_none() {
            self.places.push(None, GFP_KERNEL)?;
        }
        self.first_free = index;
        Ok(TablePlace(index))
    }

    /// Finds the memory for that place. `ENOMEM`: it is not free, or beyond [`Self::MOST_GIVEN`].
    pub(super) fn reserve_at(&mut self, number: u32) -> Result<TablePlace> {
        let index = number as usize;
        if index >= Self::MOST_GIVEN || matches!(self.places.get(index), Some(Some(_))) {
            return Err(ENOMEM);
        }
        let missing = (index + 1).saturating_sub(self.places.len());
        self.places.reserve(missing, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..missing {
            self.places.push(None, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(TablePlace(index))
    }

    /// Puts a thing into its place and returns its number.
    pub(super) fn fill(&mut self, place: TablePlace, thing: T) -> u32 {
        if let Some(free) = self.places.get_mut(place.0) {
            *free = Some(thing);
        }
        // CAST: less than `MAX`.
        place.0 as u32
    }

    /// The thing of that number.
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.places.get(number as usize)?.as_ref()
    }

    /// Takes the thing of that number out. Its place may be filled again.
    pub(super) fn take(&mut self, number: u32) -> Option<(TablePlace, T)> {
        let index = number as usize;
        let thing = self.places.get_mut(index)?.take()?;
        self.first_free = self.first_free.min(index);
        Some((TablePlace(index), thing))
    }

    /// All things.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// The same with their numbers.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (u32, &T)> {
        let places = self.places.iter().enumerate();
        // CAST: less than `MAX`.
        places.filter_map(|(index, place)| Some((index as u32, place.as_ref()?)))
    }
}

#[kernel::macros::kunit_tests(amdkfd_memory_table)]
mod tests {
    use super::*;

    fn add(table: &mut HandleTable<char>, thing: char) -> u32 {
        let place = table.reserve().unwrap();
        table.fill(place, thing)
    }

    #[test]
    fn the_lowest_free_number_is_next() {
        let mut table = HandleTable::new();
        assert_eq!(
            ['a', 'b', 'c'].map(|thing| add(&mut table, thing)),
            [0, 1, 2]
        );
        assert!(table.take(0).is_some() && table.take(1).is_some());
        assert_eq!(
            ['d', 'e', 'f'].map(|thing| add(&mut table, thing)),
            [0, 1, 3]
        );
        assert_eq!((table.iter().count(), table.get(1)), (4, Some(&'e')));
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let mut table = HandleTable::new();
        assert!(table.get(0).is_none() && table.take(0).is_none());
        assert_eq!(add(&mut table, 'a'), 0);
        assert!(table.get(1).is_none() && table.get(u32::MAX).is_none());
        assert!(table.take(u32::MAX).is_none());
    }

    #[test]
    fn a_number_can_be_given() {
        let mut table = HandleTable::new();
        let place = table.reserve_at(5).unwrap();
        assert_eq!(table.fill(place, 'a'), 5);
        assert_eq!(table.reserve_at(5).err(), Some(ENOMEM));
        for number in [HandleTable::<char>::MOST_GIVEN as u32, u32::MAX] {
            assert_eq!(table.reserve_at(number).err(), Some(ENOMEM));
        }
        assert_eq!(['b', 'c'].map(|thing| add(&mut table, thing)), [0, 1]);
        let place = table.reserve_at(3).unwrap();
        assert_eq!(table.fill(place, 'd'), 3);
        assert!(table
            .numbered()
            .eq([(0, &'b'), (1, &'c'), (3, &'d'), (5, &'a')]));
    }

    #[test]
    fn a_thing_can_go_back_to_its_place() {
        let mut table = HandleTable::new();
        assert_eq!(['a', 'b'].map(|thing| add(&mut table, thing)), [0, 1]);
        let (place, thing) = table.take(0).unwrap();
        assert_eq!(table.iter().count(), 1);
        assert_eq!(table.fill(place, thing), 0);
        assert_eq!(add(&mut table, 'c'), 2);
        assert_eq!(table.iter().count(), 3);
    }

    #[test]
    fn a_reserved_place_that_is_not_filled_is_free() {
        let mut table = HandleTable::new();
        assert!(table.reserve().is_ok());
        assert_eq!(table.iter().count(), 0);
        assert_eq!(add(&mut table, 'a'), 0);
    }
}
