//! Any operation of the model.

use proptest::prelude::*;
use rheostat_storage::conformance::model;

/// Any operation of the model.
pub fn operation() -> impl Strategy<Value = model::Operation> {
    use model::{Operation, Write};
    let write = prop_oneof![any::<u8>().prop_map(Write::Put), (0..20u8).prop_map(Write::Expiring), Just(Write::Delete)];
    let keys = prop::collection::vec(0..12u8, 1..4);
    let cut = (0..40u8, 0..40u8, 0..40u8);
    let some = prop::collection::vec(0..12u8, 1..8);
    prop_oneof![
        2 => some.prop_map(Operation::Ask),
        1 => Just(Operation::Read),
        1 => Just(Operation::TakeIn),
        6 => (keys.clone(), write.clone()).prop_map(|(keys, write)| Operation::Own(keys, write)),
        6 => (0..2u8, 0..30u8, keys, write).prop_map(|(origin, back, keys, write)| Operation::Remote(origin, back, keys, write)),
        1 => (0..20u8).prop_map(Operation::Again),
        1 => any::<u8>().prop_map(Operation::State),
        1 => Just(Operation::Flush),
        1 => Just(Operation::Maintain),
        1 => (0..40u8).prop_map(Operation::Release),
        2 => (0..12u8, cut.clone()).prop_map(|(key, (settled, complete, floor))| Operation::Collect(key, settled, complete, floor)),
        2 => (0..6u8, cut).prop_map(|(limit, (settled, complete, floor))| Operation::CollectSome(limit, settled, complete, floor)),
        1 => Just(Operation::Restart),
    ]
}
