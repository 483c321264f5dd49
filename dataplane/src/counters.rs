//! Counters and their sum from one list, so that none can be left out of it.

/// Defines a struct of counters, `add`, which adds those of another to it, and `named`, which lists them:
/// each of `sums` is added, of each of `peaks` the larger one is kept.
macro_rules! counters {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            sums { $($(#[$sum_attribute:meta])* pub $sum:ident: $sum_type:ty,)* }
            peaks { $($(#[$peak_attribute:meta])* pub $peak:ident: $peak_type:ty,)* }
        }
    ) => {
        $(#[$attribute])*
        pub struct $name {
            $($(#[$sum_attribute])* pub $sum: $sum_type,)*
            $($(#[$peak_attribute])* pub $peak: $peak_type,)*
        }

        impl $name {
            /// Adds the counters of another connection; peaks are taken, not added.
            pub fn add(&mut self, other: &Self) {
                $(self.$sum += other.$sum;)*
                $(self.$peak = self.$peak.max(other.$peak);)*
            }

            /// Returns all counters with their names.
            pub fn named(&self) -> Vec<$crate::named::NamedValue> {
                use $crate::named::NamedValue;
                vec![
                    $(NamedValue::new(stringify!($sum), u64::from(self.$sum)),)*
                    $(NamedValue::new(stringify!($peak), u64::from(self.$peak)),)*
                ]
            }

            /// Returns counters with values of their own, from `first` on.
            #[cfg(test)]
            pub(crate) fn numbered(first: u32) -> Self {
                let mut numbers = first..;
                let mut next = || numbers.next().unwrap_or(first);
                Self { $($sum: next().into(),)* $($peak: next().into(),)* }
            }
        }
    };
}

pub(crate) use counters;

#[cfg(test)]
mod tests {
    use core::fmt::Debug;

    use crate::byte_stream::TransferCounters;
    use crate::tcp::Counters;

    /// The names and values of counters, as their `Debug` shows them.
    fn values(counters: &impl Debug) -> Vec<(String, u64)> {
        let text = format!("{counters:?}");
        let (_, fields) = text.trim_end_matches('}').split_once('{').unwrap();
        let value = |field: &str| {
            let (name, value) = field.split_once(':').unwrap();
            (name.trim().to_owned(), value.trim().parse().unwrap())
        };
        fields.split(',').map(value).collect()
    }

    /// Every counter of `sum` is what `near` and `far` have of it together, and every peak the larger one.
    fn is_the_sum<T: Debug>(sum: &T, near: &T, far: &T) {
        let (sum, near, far) = (values(sum), values(near), values(far));
        assert!(sum.len() > 10 && near.len() == sum.len() && far.len() == sum.len());
        let expected = near.iter().zip(&far).map(|((name, near), (_, far))| {
            let together = if name.ends_with("_peak") { *near.max(far) } else { near + far };
            (name.clone(), together)
        });
        assert_eq!(sum, expected.collect::<Vec<_>>());
        let mut distinct: Vec<_> = near.iter().chain(&far).map(|(_, value)| value).collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 2 * sum.len(), "two counters in each other's place would not show");
    }

    #[test]
    fn each_counter_of_tcp_is_in_the_sum() {
        let (near, far) = (Counters::numbered(1), Counters::numbered(1000));
        for (near, far) in [(near, far), (far, near)] {
            let mut sum = near;
            sum.add(&far);
            is_the_sum(&sum, &near, &far);
        }
    }

    #[test]
    fn each_counter_of_transfers_is_in_the_sum() {
        let (near, far) = (TransferCounters::numbered(1), TransferCounters::numbered(1000));
        let mut sum = near;
        sum.add(&far);
        is_the_sum(&sum, &near, &far);
    }
}
