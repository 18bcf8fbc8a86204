//! The values of expressions and of texts with variables, for a request.

mod evaluate;
mod template;

pub(crate) use evaluate::{Evaluation, path_of};
pub(crate) use sendoff_apache_expression::Expression;
pub(crate) use template::Template;
