//! Evaluates `check` lines: `cwnd == 10 * mss && 90ms <= srtt`.

use super::words::duration;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(i128),
    Name(String),
    Operator(String),
}

/// Evaluates `text`, with `value` returning the value of each name. If it is false, returns the value of each
/// name.
///
/// # Errors
///
/// The part that cannot be parsed, or the error of `value` for a name.
pub fn holds(text: &str, value: impl Fn(&str) -> Result<i128, String>) -> Result<Result<(), String>, String> {
    let tokens = tokens(text)?;
    let mut seen = Vec::new();
    let mut lookup = |name: &str| {
        let value = value(name)?;
        seen.push(format!("{name} is {value}"));
        Ok(value)
    };
    let mut all = true;
    for clause in tokens.split(|token| *token == Token::Operator("&&".to_owned())) {
        all &= comparison(clause, &mut lookup)?;
    }
    Ok(if all { Ok(()) } else { Err(seen.join(", ")) })
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |char: char| char.is_ascii_alphanumeric() || "_.".contains(char);
        let len = if is_word(first) {
            rest.find(|char| !is_word(char)).unwrap_or(rest.len())
        } else if ["==", "!=", "<=", ">=", "&&"].iter().any(|operator| rest.starts_with(operator)) {
            2
        } else {
            first.len_utf8()
        };
        let (word, after) = rest.split_at(len);
        tokens.push(match first {
            '0'..='9' => Token::Number(literal(word)?),
            _ if is_word(first) => Token::Name(word.to_owned()),
            '=' | '!' | '<' | '>' | '&' | '+' | '-' | '*' | '/' => Token::Operator(word.to_owned()),
            _ => return Err(format!("{first:?} is nothing that can be checked")),
        });
        rest = after.trim_start();
    }
    Ok(tokens)
}

fn literal(word: &str) -> Result<i128, String> {
    match word.parse() {
        Ok(number) => Ok(number),
        Err(_) => duration(word).map(i128::from),
    }
}

/// `A < B <= C ...`: every neighbouring pair.
fn comparison(
    tokens: &[Token],
    lookup: &mut impl FnMut(&str) -> Result<i128, String>,
) -> Result<bool, String> {
    const COMPARISONS: [&str; 6] = ["==", "!=", "<", "<=", ">", ">="];
    let is_comparison = |token: &Token| match token {
        Token::Operator(operator) => COMPARISONS.contains(&operator.as_str()),
        _ => false,
    };
    let operators: Vec<_> = tokens.iter().filter(|token| is_comparison(token)).collect();
    let sides: Vec<_> =
        tokens.split(is_comparison).map(|side| sum(side, lookup)).collect::<Result<_, _>>()?;
    if operators.is_empty() {
        return Err("nothing is compared".to_owned());
    }
    Ok(operators.iter().zip(sides.windows(2)).all(|(operator, pair)| {
        let Token::Operator(operator) = operator else { return false };
        match operator.as_str() {
            "==" => pair[0] == pair[1],
            "!=" => pair[0] != pair[1],
            "<" => pair[0] < pair[1],
            "<=" => pair[0] <= pair[1],
            ">" => pair[0] > pair[1],
            _ => pair[0] >= pair[1],
        }
    }))
}

/// Products, added and subtracted.
fn sum(tokens: &[Token], lookup: &mut impl FnMut(&str) -> Result<i128, String>) -> Result<i128, String> {
    let mut total = 0;
    let mut start = 0;
    let mut sign = 1;
    for at in 0..=tokens.len() {
        let next_sign = match tokens.get(at) {
            None => 0,
            Some(Token::Operator(operator)) if operator == "+" => 1,
            Some(Token::Operator(operator)) if operator == "-" => -1,
            Some(_) => continue,
        };
        total += sign * product(&tokens[start..at], lookup)?;
        (start, sign) = (at + 1, next_sign);
    }
    Ok(total)
}

fn product(tokens: &[Token], lookup: &mut impl FnMut(&str) -> Result<i128, String>) -> Result<i128, String> {
    let mut factors = tokens.iter();
    let mut factor = |factors: &mut std::slice::Iter<'_, Token>| match factors.next() {
        Some(Token::Number(number)) => Ok(*number),
        Some(Token::Name(name)) => lookup(name),
        other => Err(format!("a number or a name was to come, not {other:?}")),
    };
    let mut product = factor(&mut factors)?;
    while let Some(operator) = factors.next() {
        let next = factor(&mut factors)?;
        match operator {
            Token::Operator(operator) if operator == "*" => product *= next,
            Token::Operator(operator) if operator == "/" && next != 0 => product /= next,
            other => return Err(format!("{other:?} does not belong there")),
        }
    }
    Ok(product)
}
