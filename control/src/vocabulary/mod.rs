//! Words that handles and the control engine share: configurations, errors, reports and names. Nothing here acts.

pub mod advertisement;
pub mod connect;
pub mod device_name;
pub mod socket_pair;
