import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.schema import UnknownKeyword, misfit
from loadgen.workload import builtin

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, -2.0]) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null"])
SIZES = st.integers(0, 3)


def schemas(inner):
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
            "properties": st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
            "required": st.lists(st.sampled_from("xyz"), max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "const": VALUES,
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "minimum": st.integers(-2, 2),
            "maximum": st.integers(-2, 2),
            "minLength": SIZES,
            "maxLength": SIZES,
            "minItems": SIZES,
            "maxItems": SIZES,
            "pattern": st.sampled_from(["^a", "b$", "ab"]),
        },
    )


SCHEMAS = schemas(schemas(st.just({})))


@given(VALUES, SCHEMAS)
def test_a_value_fits_exactly_when_jsonschema_says_so(value, schema):
    assert (misfit(value, schema) is None) == jsonschema.Draft202012Validator(schema).is_valid(value)


def test_the_reason_names_the_place():
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
    assert misfit({"a": [1, "2"]}, schema) == "$.a[1] is no integer"


def test_an_unknown_keyword_is_an_error_and_not_a_fit():
    with pytest.raises(UnknownKeyword, match="'oneOf' is not known"):
        misfit(1, {"oneOf": []})


def test_the_schemas_of_the_built_in_prompts_use_known_keywords_only():
    for prompt in builtin(["structured"], ["en"]):
        jsonschema.Draft202012Validator.check_schema(prompt.schema)
        misfit({}, prompt.schema)
        misfit([], prompt.schema)
