//! Each distinct value once, by a small typed handle.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

use jfr_format::pool::KeyHash;

/// Handle of a value in its [`Interner`].
pub struct Id<T> {
    index: u32,
    of: PhantomData<fn() -> T>,
}

impl<T> Id<T> {
    /// Position in the interner.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Id<T> {}

impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl<T> Eq for Id<T> {}

impl<T> Hash for Id<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.index.hash(state);
    }
}

impl<T> std::fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}", self.index)
    }
}

/// Distinct values in order of first appearance.
#[derive(Debug)]
pub struct Interner<T> {
    values: Vec<Arc<T>>,
    ids: HashMap<Arc<T>, u32, KeyHash>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { values: Vec::new(), ids: HashMap::default() }
    }
}

impl<T: Hash + Eq> Interner<T> {
    /// The handle of `value`, new or known.
    pub fn intern(&mut self, value: T) -> Id<T> {
        if let Some(&index) = self.ids.get(&value) {
            return Id { index, of: PhantomData };
        }
        let index = self.values.len() as u32;
        let value = Arc::new(value);
        self.values.push(value.clone());
        self.ids.insert(value, index);
        Id { index, of: PhantomData }
    }

    /// Takes in the values of another interner, each changed by `change`, in their order. What was handle *i* there
    /// is the *i*-th handle of the result here.
    pub fn absorb(&mut self, other: Self, mut change: impl FnMut(T) -> T) -> Vec<Id<T>>
    where
        T: Clone,
    {
        drop(other.ids);
        let own = |value: Arc<T>| Arc::try_unwrap(value).unwrap_or_else(|shared| (*shared).clone());
        other.values.into_iter().map(|value| self.intern(change(own(value)))).collect()
    }

    /// The value of a handle of this interner.
    pub fn get(&self, id: Id<T>) -> &T {
        &self.values[id.index()]
    }

    /// All values with their handles.
    pub fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        self.values.iter().enumerate().map(|(i, v)| (Id { index: i as u32, of: PhantomData }, &**v))
    }

    /// Number of distinct values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}
