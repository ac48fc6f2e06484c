// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! How much a sender may still send before the receiver has taken something.

use std::sync::{Condvar, Mutex, PoisonError};

pub struct Credit {
    /// `None`: nothing more is to be sent.
    left: Mutex<Option<usize>>,
    more: Condvar,
}

impl Credit {
    /// So much may be on its way.
    pub fn new(window: usize) -> Self {
        Self {
            left: Mutex::new(Some(window)),
            more: Condvar::new(),
        }
    }

    /// The receiver has taken so much.
    pub fn add(&self, count: usize) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left = left.map(|left| left.saturating_add(count));
        self.more.notify_all();
    }

    /// Nothing more is to be sent.
    pub fn close(&self) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.more.notify_all();
    }

    /// Takes up to `most`, and waits until there is something; `None` once it is closed.
    pub fn take(&self, most: usize) -> Option<usize> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &mut *left {
                None => return None,
                Some(0) => {}
                Some(left) => {
                    let count = most.min(*left);
                    *left -= count;
                    return Some(count);
                }
            }
            left = self.more.wait(left).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_given_than_there_is() {
        let credit = Credit::new(10);
        assert_eq!(credit.take(7), Some(7));
        assert_eq!(credit.take(7), Some(3));
        credit.add(5);
        assert_eq!(credit.take(7), Some(5));
        credit.close();
        credit.add(5);
        assert_eq!(credit.take(7), None);
    }
}
