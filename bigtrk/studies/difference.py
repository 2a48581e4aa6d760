"""What differs between two configurations."""


def first_difference(old: object, new: object, key: str = "") -> str:
    """Returns the first key of two configurations that differs, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        changed = next(k for k in {**old, **new} if old.get(k) != new.get(k))
        return first_difference(old.get(changed), new.get(changed), f"{key}{changed}.")
    return f"{key[:-1]} {old} instead of {new}".strip()
