// SPDX-License-Identifier: GPL-2.0-only

//! Which attributes the pages of a process's address space have.

use super::{
    attributes::Attributes,
    pages::Pages, //
};
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    },
};

/// A range, but for its end.
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    attributes: Attributes,
}

/// Ranges by the page where each ends, exclusive: so the first that ends behind a page is the one
/// that has it, if any has.
type Tree = RBTree<u64, Range>;

/// The ranges of an address space: pages of which something was said, and what.
///
/// # Invariants
///
/// No range is empty, no two overlap, and `count` says how many there are.
pub(crate) struct Ranges {
    tree: Tree,
    count: usize,
}

impl Ranges {
    /// None.
    pub(crate) fn new() -> Self {
        // INVARIANT: there is none.
        Self {
            tree: RBTree::new(),
            count: 0,
        }
    }

    /// How many.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The range that has a page.
    pub(crate) fn at(&self, page: u64) -> Option<(Pages, Attributes)> {
        self.first_behind(page)
            .filter(|(range, _)| range.contains(page))
    }

    /// The first range that begins at `page` or later.
    pub(crate) fn next(&self, page: u64) -> Option<(Pages, Attributes)> {
        match self.first_behind(page) {
            Some((range, _)) if range.start < page => self.first_behind(range.end),
            found => found,
        }
    }

    /// The first range that ends behind a page.
    fn first_behind(&self, page: u64) -> Option<(Pages, Attributes)> {
        let cursor = self.tree.cursor_lower_bound(&page.checked_add(1)?)?;
        let (end, range) = cursor.current();
        Some((Pages::new(range.start, *end), range.attributes))
    }

    /// The ranges that overlap `pages`, cut to it, in order.
    pub(crate) fn each(&mut self, pages: Pages, mut act: impl FnMut(Pages, &Attributes)) {
        // Of the kernel's cursors only those that may change the tree go from one to the next.
        let mut next = self
            .tree
            .cursor_lower_bound_mut(&pages.start.saturating_add(1));
        while let Some(cursor) = next {
            let (end, range) = cursor.current();
            let Some(part) = Pages::new(range.start, *end).intersection(pages) else {
                return;
            };
            act(part, &range.attributes);
            next = cursor.move_next();
        }
    }

    /// The largest area without ranges that contains `page` and lies in `within`. Requires: no
    /// range has `page`.
    pub(crate) fn gap(&self, page: u64, within: Pages) -> Pages {
        let (before, behind) = match self.tree.cursor_lower_bound(&page.saturating_add(1)) {
            Some(cursor) => {
                let before = cursor.peek_prev().map(|(end, _)| *end);
                (before, Some(cursor.current().1.start))
            }
            None => {
                let last = self.tree.cursor_back();
                (last.map(|cursor| *cursor.current().0), None)
            }
        };
        Pages::new(
            before.map_or(within.start, |end| end.max(within.start)),
            behind.map_or(within.end, |start| start.min(within.end)),
        )
    }

    /// What `change` makes of the attributes in `pages` (`None`: there were none). All that is
    /// needed is allocated; nothing is changed before [`Self::commit`].
    pub(crate) fn plan(
        &mut self,
        pages: Pages,
        change: impl Fn(Option<&Attributes>) -> Attributes,
    ) -> Result<Plan> {
        let mut plan = Plan::new();
        let add = |plan: &mut Plan, part: Pages, before: Option<&Attributes>| {
            let after = change(before);
            plan.known += before.map_or(0, |_| part.len());
            plan.used += before.map_or(0, |before| before.usable(part));
            plan.will_use += after.usable(part);
            plan.push(part, after)
        };
        if pages.is_empty() {
            return Ok(plan);
        }
        let (before, behind) = (Pages::new(0, pages.start), Pages::new(pages.end, u64::MAX));
        let mut next = pages.start;
        // From the one that ends where they begin, if there is one.
        let mut found = self.tree.cursor_lower_bound_mut(&pages.start);
        while let Some(cursor) = found {
            let (end, range) = cursor.current();
            if range.start > pages.end {
                break;
            }
            let (range, attributes) = (Pages::new(range.start, *end), range.attributes);
            // What is cut off is planned anew, and so is what lies beside if it becomes one with
            // what is changed.
            if range.end == pages.start {
                plan.before = Some((range, attributes));
            } else if let Some(head) = range.intersection(before) {
                plan.push(head, attributes)?;
            }
            if next < range.start.min(pages.end) {
                add(&mut plan, Pages::new(next, range.start), None)?;
            }
            if let Some(part) = range.intersection(pages) {
                add(&mut plan, part, Some(&attributes))?;
            }
            next = next.max(range.end);
            let stays = range.start == pages.end && !plan.ends_with(&attributes);
            if let Some(tail) = range.intersection(behind).filter(|_| !stays) {
                plan.push(tail, attributes)?;
            }
            found = cursor.move_next();
        }
        if next < pages.end {
            add(&mut plan, Pages::new(next, pages.end), None)?;
        }
        plan.finish()?;
        Ok(plan)
    }

    /// Changes the attributes of `pages`, if these are one range, which stays one by itself, and
    /// `fits` says so of what it had and what it gets. What nobody has said anything of is not
    /// changed either.
    pub(crate) fn update(
        &mut self,
        pages: Pages,
        change: impl Fn(Option<&Attributes>) -> Attributes,
        fits: impl Fn(&Attributes, &Attributes) -> bool,
    ) -> Update {
        let continues = |it: (&u64, &Range), after: &Attributes| {
            *it.0 == pages.start && it.1.attributes == *after
        };
        let goes_on = |it: (&u64, &Range), after: &Attributes| {
            it.1.start == pages.end && it.1.attributes == *after
        };
        let first = pages.start.saturating_add(1);
        let Some(mut cursor) = self.tree.cursor_lower_bound_mut(&first) else {
            let after = change(None);
            let last = self.tree.cursor_back();
            return match last.is_some_and(|last| continues(last.current(), &after)) {
                true => Update::Not,
                false => Update::New(after),
            };
        };
        let (end, range) = cursor.current();
        let is_new = range.start >= pages.end;
        if !is_new && (range.start, *end) != (pages.start, pages.end) {
            return Update::Not;
        }
        let after = change((!is_new).then_some(&range.attributes));
        let behind = match is_new {
            true => Some((end, range)),
            false => cursor.peek_next(),
        };
        let grows = behind.is_some_and(|it| goes_on(it, &after))
            || cursor.peek_prev().is_some_and(|it| continues(it, &after));
        if grows || !is_new && !fits(&range.attributes, &after) {
            return Update::Not;
        }
        if is_new {
            return Update::New(after);
        }
        cursor.current_mut().1.attributes = after;
        Update::Done
    }

    /// Adds a range that [`Self::update`] has found to be one by itself. Nothing may have changed
    /// since.
    pub(crate) fn add(&mut self, pages: Pages, attributes: Attributes, spare: Spare) {
        let start = pages.start;
        if !pages.is_empty() {
            self.put(spare.0.into_node(pages.end, Range { start, attributes }));
        }
    }

    /// Does what was planned. The ranges must not have changed since.
    pub(crate) fn commit(&mut self, mut plan: Plan) {
        let Some(area) = plan.area else {
            return;
        };
        let mut found = self
            .tree
            .cursor_lower_bound_mut(&area.start.saturating_add(1));
        while let Some(cursor) = found {
            let (end, range) = cursor.current();
            // Those that overlap the area lie in it. Behind the last of all comes one before it.
            if !area.covers(Pages::new(range.start, *end)) {
                break;
            }
            found = cursor.remove_current().0;
            // INVARIANT: one less.
            self.count -= 1;
        }
        while let Some(first) = plan.ranges.cursor_front_mut() {
            self.put(first.remove_current().1);
        }
    }

    /// Forgets the ranges in `pages`. `spare`: in case one range becomes two.
    pub(crate) fn remove(&mut self, pages: Pages, spare: Spare) {
        if pages.is_empty() {
            return;
        }
        while let Some((range, attributes)) = self.first_behind(pages.start) {
            if !range.overlaps(pages) {
                return;
            }
            let head = Range {
                start: range.start,
                attributes,
            };
            let has_head = range.start < pages.start;
            if pages.end < range.end {
                // INVARIANT: what is left of it is not empty, and its end is the same.
                if let Some(tail) = self.tree.get_mut(&range.end) {
                    tail.start = pages.end;
                }
                if has_head {
                    self.put(spare.0.into_node(pages.start, head));
                }
                return;
            }
            let node = self.take(range.end);
            if let Some(node) = node.filter(|_| has_head) {
                self.put(node.into_reservation().into_node(pages.start, head));
            }
        }
    }

    /// Takes the range out that ends there.
    fn take(&mut self, end: u64) -> Option<RBTreeNode<u64, Range>> {
        let node = self.tree.remove_node(&end)?;
        // INVARIANT: one less.
        self.count -= 1;
        Some(node)
    }

    /// Adds a range, where there is none.
    fn put(&mut self, node: RBTreeNode<u64, Range>) {
        if self.tree.insert(node).is_none() {
            // INVARIANT: one more.
            self.count += 1;
        }
    }
}

impl Attributes {
    /// How many of so many pages with them GPUs may use.
    pub(super) fn usable(&self, pages: Pages) -> u64 {
        match self.access.union(self.in_place).is_empty() {
            true => 0,
            false => pages.len(),
        }
    }
}

/// What [`Ranges::update`] has done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Update {
    Done,
    /// Nothing: these are the attributes of a range that stays one by itself where there is none.
    New(Attributes),
    /// Nothing: other ranges change, too.
    Not,
}

/// Ranges that [`Ranges::commit`] puts where others are.
pub(crate) struct Plan {
    ranges: Tree,
    /// From the start of the first to the end of the last, without a gap.
    area: Option<Pages>,
    /// The range that ends where they begin, as long as nothing is planned.
    before: Option<(Pages, Attributes)>,
    /// The last, which may still grow.
    last: Option<(Pages, Attributes)>,
    /// Pages of the area that have attributes already.
    pub(crate) known: u64,
    /// Those of it that GPUs may use, before and afterwards.
    pub(crate) used: u64,
    pub(crate) will_use: u64,
}

impl Plan {
    fn new() -> Self {
        Self {
            ranges: RBTree::new(),
            area: None,
            before: None,
            last: None,
            known: 0,
            used: 0,
            will_use: 0,
        }
    }

    /// Adds pages behind the last ones, to their range if that is the same.
    fn push(&mut self, pages: Pages, attributes: Attributes) -> Result {
        if let Some((range, same)) = self.before.take() {
            if same == attributes {
                (self.area, self.last) = (Some(range), Some((range, same)));
            }
        }
        let start = self.area.map_or(pages.start, |area| area.start);
        self.area = Some(Pages::new(start, pages.end));
        match &mut self.last {
            Some((range, same)) if *same == attributes => range.end = pages.end,
            _ => {
                self.finish()?;
                self.last = Some((pages, attributes));
            }
        }
        Ok(())
    }

    /// Whether what begins behind the last range would become one with it.
    fn ends_with(&self, attributes: &Attributes) -> bool {
        self.last.is_some_and(|(_, last)| last == *attributes)
    }

    /// The last range does not grow any more.
    fn finish(&mut self) -> Result {
        if let Some((pages, attributes)) = self.last.take() {
            let start = pages.start;
            let range = Range { start, attributes };
            let node = RBTreeNode::new(pages.end, range, GFP_KERNEL_ACCOUNT)?;
            self.ranges.insert(node);
        }
        Ok(())
    }
}

/// Room for one range.
pub(crate) struct Spare(RBTreeNodeReservation<u64, Range>);

impl Spare {
    /// Allocates it.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }
}

#[kernel::macros::kunit_tests(amdkfd_svm_ranges)]
mod tests {
    use super::*;
    use crate::svm::attributes::GpuSet;

    /// Attributes that differ in their granularity.
    fn like(granularity: u8) -> Attributes {
        Attributes::new(granularity, GpuSet::EMPTY)
    }

    fn set(ranges: &mut Ranges, start: u64, end: u64, granularity: u8) {
        let plan = ranges.plan(Pages::new(start, end), |_| like(granularity));
        ranges.commit(plan.unwrap());
    }

    fn remove(ranges: &mut Ranges, start: u64, end: u64) {
        ranges.remove(Pages::new(start, end), Spare::new().unwrap());
    }

    /// Whether these are the parts of ranges in an area: start, end, granularity.
    fn are(ranges: &mut Ranges, start: u64, end: u64, expected: &[(u64, u64, u8)]) -> bool {
        let mut expected = expected.iter();
        let mut same = true;
        ranges.each(Pages::new(start, end), |pages, attributes| {
            let found = (pages.start, pages.end, attributes.granularity);
            same &= expected.next() == Some(&found);
        });
        same && expected.next().is_none()
    }

    /// Whether these are all ranges.
    fn all(ranges: &mut Ranges, expected: &[(u64, u64, u8)]) -> bool {
        ranges.len() == expected.len() && are(ranges, 0, u64::MAX, expected)
    }

    fn three() -> Ranges {
        let mut ranges = Ranges::new();
        set(&mut ranges, 30, 40, 3);
        set(&mut ranges, 10, 20, 1);
        set(&mut ranges, 20, 25, 2);
        ranges
    }

    #[test]
    fn a_page_is_in_one_range_or_none() {
        let ranges = three();
        let at = |page| ranges.at(page).map(|(range, _)| (range.start, range.end));
        assert_eq!(
            (at(9), at(10), at(19)),
            (None, Some((10, 20)), Some((10, 20)))
        );
        assert_eq!(
            (at(20), at(25), at(30)),
            (Some((20, 25)), None, Some((30, 40)))
        );
        assert_eq!((at(40), at(u64::MAX)), (None, None));
        assert!(Ranges::new().at(0).is_none());
    }

    #[test]
    fn ranges_are_found_one_after_the_other() {
        let ranges = three();
        let next = |page| ranges.next(page).map(|(range, _)| (range.start, range.end));
        assert_eq!((next(0), next(10)), (Some((10, 20)), Some((10, 20))));
        // Of one that has grown meanwhile nothing is told twice.
        assert_eq!((next(11), next(21)), (Some((20, 25)), Some((30, 40))));
        assert_eq!((next(40), next(u64::MAX)), (None, None));
        assert!(Ranges::new().next(0).is_none());
    }

    #[test]
    fn a_range_that_stays_by_itself_is_updated() {
        let mut ranges = three();
        let mut update = |start, end, granularity, fits| {
            let pages = Pages::new(start, end);
            ranges.update(pages, |_| like(granularity), |_, _| fits) == Update::Done
        };
        assert!(!update(10, 19, 7, true) && !update(11, 20, 7, true));
        assert!(!update(25, 30, 7, true) && !update(40, 50, 7, true));
        assert!(!update(10, 20, 7, false));
        // It would become one with the next, or with the one before.
        assert!(!update(10, 20, 2, true) && !update(20, 25, 1, true));
        assert!(update(10, 20, 7, true) && update(30, 40, 2, true));
        assert!(all(&mut ranges, &[(10, 20, 7), (20, 25, 2), (30, 40, 2)]));
    }

    #[test]
    fn a_range_is_new_where_there_is_none_like_it() {
        let mut ranges = three();
        let mut is_new = |start, end, granularity| {
            let new = ranges.update(Pages::new(start, end), |_| like(granularity), |_, _| true);
            new == Update::New(like(granularity))
        };
        assert!(is_new(2, 5, 7) && is_new(2, 10, 7) && is_new(26, 29, 2) && is_new(45, 50, 3));
        assert!(is_new(25, 30, 7) && is_new(40, 50, 2));
        // It would become one with the next, or with the one before.
        assert!(!is_new(2, 10, 1) && !is_new(25, 30, 2) && !is_new(25, 30, 3));
        assert!(!is_new(40, 50, 3));
        // Somebody has said something of a part.
        assert!(!is_new(2, 11, 7) && !is_new(24, 26, 7) && !is_new(39, 41, 7));
        assert!(all(&mut ranges, &[(10, 20, 1), (20, 25, 2), (30, 40, 3)]));
        ranges.add(Pages::new(25, 30), like(7), Spare::new().unwrap());
        ranges.add(Pages::new(50, 50), like(7), Spare::new().unwrap());
        let expected = [(10, 20, 1), (20, 25, 2), (25, 30, 7), (30, 40, 3)];
        assert!(all(&mut ranges, &expected));
        let none = Ranges::new().update(Pages::new(1, 2), |_| like(7), |_, _| true);
        assert_eq!(none, Update::New(like(7)));
    }

    #[test]
    fn an_area_sees_parts_of_ranges() {
        let mut ranges = three();
        assert!(are(
            &mut ranges,
            15,
            35,
            &[(15, 20, 1), (20, 25, 2), (30, 35, 3)]
        ));
        assert!(are(&mut ranges, 12, 13, &[(12, 13, 1)]));
        assert!(are(&mut ranges, 25, 30, &[]) && are(&mut ranges, 12, 12, &[]));
        assert!(all(&mut ranges, &[(10, 20, 1), (20, 25, 2), (30, 40, 3)]));
    }

    #[test]
    fn a_gap_ends_at_ranges_or_the_area() {
        let ranges = three();
        let all = Pages::new(2, 100);
        assert_eq!(ranges.gap(5, all), Pages::new(2, 10));
        assert_eq!(ranges.gap(27, all), Pages::new(25, 30));
        assert_eq!(ranges.gap(40, all), Pages::new(40, 100));
        assert_eq!(ranges.gap(27, Pages::new(26, 28)), Pages::new(26, 28));
        assert_eq!(ranges.gap(60, Pages::new(50, 70)), Pages::new(50, 70));
        assert_eq!(Ranges::new().gap(5, all), all);
    }

    #[test]
    fn a_change_meets_ranges_and_gaps() {
        let mut ranges = three();
        let more = |old: Option<&Attributes>| like(old.map_or(9, |old| old.granularity + 10));
        let plan = ranges.plan(Pages::new(15, 35), more).unwrap();
        assert!(all(&mut ranges, &[(10, 20, 1), (20, 25, 2), (30, 40, 3)]));
        ranges.commit(plan);
        assert!(all(
            &mut ranges,
            &[
                (10, 15, 1),
                (15, 20, 11),
                (20, 25, 12),
                (25, 30, 9),
                (30, 35, 13),
                (35, 40, 3)
            ]
        ));
    }

    #[test]
    fn a_change_amid_a_range_makes_three() {
        let mut ranges = Ranges::new();
        set(&mut ranges, 10, 20, 1);
        set(&mut ranges, 13, 15, 2);
        assert!(all(&mut ranges, &[(10, 13, 1), (13, 15, 2), (15, 20, 1)]));
        set(&mut ranges, 13, 15, 1);
        assert!(all(&mut ranges, &[(10, 20, 1)]));
    }

    #[test]
    fn neighbours_alike_become_one() {
        let mut ranges = three();
        set(&mut ranges, 25, 30, 2);
        assert!(all(&mut ranges, &[(10, 20, 1), (20, 30, 2), (30, 40, 3)]));
        set(&mut ranges, 20, 30, 3);
        assert!(all(&mut ranges, &[(10, 20, 1), (20, 40, 3)]));
        set(&mut ranges, 0, 50, 1);
        assert!(all(&mut ranges, &[(0, 50, 1)]));
    }

    #[test]
    fn only_what_changes_is_planned() {
        let mut ranges = three();
        let mut planned = |start, end, granularity| {
            let plan = ranges.plan(Pages::new(start, end), |_| like(granularity));
            plan.unwrap().ranges.iter().count()
        };
        // Beside others, as one with the one before, or behind, and amid one.
        assert_eq!((planned(25, 30, 9), planned(20, 25, 9)), (1, 1));
        assert_eq!((planned(25, 30, 2), planned(25, 30, 3)), (1, 1));
        assert_eq!((planned(32, 35, 9), planned(15, 30, 9)), (3, 2));
    }

    #[test]
    fn pages_apart_stay_apart() {
        let mut ranges = Ranges::new();
        set(&mut ranges, 0, 2, 1);
        set(&mut ranges, 3, 4, 1);
        assert!(all(&mut ranges, &[(0, 2, 1), (3, 4, 1)]));
        set(&mut ranges, 2, 3, 1);
        assert!(all(&mut ranges, &[(0, 4, 1)]));
    }

    #[test]
    fn nothing_planned_changes_nothing() {
        let mut ranges = three();
        set(&mut ranges, 12, 12, 9);
        remove(&mut ranges, 12, 12);
        drop(ranges.plan(Pages::new(0, 90), |_| like(9)));
        assert!(all(&mut ranges, &[(10, 20, 1), (20, 25, 2), (30, 40, 3)]));
    }

    #[test]
    fn what_is_removed_leaves_what_is_beside() {
        let mut ranges = three();
        remove(&mut ranges, 15, 35);
        assert!(all(&mut ranges, &[(10, 15, 1), (35, 40, 3)]));
        remove(&mut ranges, 0, 11);
        remove(&mut ranges, 15, 35);
        assert!(all(&mut ranges, &[(11, 15, 1), (35, 40, 3)]));
        remove(&mut ranges, 11, 15);
        remove(&mut ranges, 39, 90);
        assert!(all(&mut ranges, &[(35, 39, 3)]));
        remove(&mut ranges, 0, 90);
        assert!(all(&mut ranges, &[]));
    }

    #[test]
    fn removal_amid_a_range_makes_two() {
        let mut ranges = Ranges::new();
        set(&mut ranges, 10, 20, 1);
        remove(&mut ranges, 13, 15);
        assert!(all(&mut ranges, &[(10, 13, 1), (15, 20, 1)]));
        assert_eq!(ranges.gap(14, Pages::new(0, 90)), Pages::new(13, 15));
    }

    #[test]
    fn page_by_page_it_is_what_a_table_would_say() {
        const PAGES: usize = 24;
        let mut table = [0u8; PAGES];
        let mut ranges = Ranges::new();
        let mut seed = 1u64;
        for _ in 0..400 {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            // CAST: here and below: small numbers.
            let start = (seed >> 33) as usize % PAGES;
            let end = (start + (seed >> 43) as usize % 9).min(PAGES);
            let kind = (seed >> 60) as u8 % 4;
            if kind == 0 {
                remove(&mut ranges, start as u64, end as u64);
            } else {
                set(&mut ranges, start as u64, end as u64, kind);
            }
            table[start..end].fill(kind);
            let found = |page| ranges.at(page).map_or(0, |(_, found)| found.granularity);
            assert!((0..)
                .map(found)
                .zip(table)
                .all(|(found, kind)| found == kind));
            let mut covered = 0;
            ranges.each(Pages::new(0, u64::MAX), |pages, _| covered += pages.len());
            assert_eq!(
                covered as usize,
                table.iter().filter(|kind| **kind != 0).count()
            );
        }
    }
}
