"""Conventions of third parties: found by entry point, asked array by array, and a failure is a finding."""

import sys
import types

import pytest

import periplus.conventions
from periplus.conventions import handlers
from periplus.conventions.handlers import ENTRY_POINTS, Handler, ask, register, third_parties, unregister


class Good:
    tier = "principal"
    name = "good"
    uuid = None

    @staticmethod
    def detect(root, group, array):
        return array == "array"

    def get_variables(self, array, group, root):
        return {"x": (array, group, root)}


class Service(Good):
    tier = "service"
    name = "service"

    def get_variables(self, array, group, root):
        return {"x": 1, "y": 2}


class Broken(Good):
    name = "broken"

    def get_variables(self, array, group, root):
        raise ZeroDivisionError("oh")


class Undetecting(Good):
    name = "undetecting"

    def detect(self, root, group, array):
        raise RuntimeError("no")


def consult(*found, array="array"):
    return ask(found, path="/a", root="root", group="group", array=array)


def test_handlers_have_the_interface_of_the_seed():
    assert isinstance(Good(), Handler)
    answer = consult(Good())
    assert answer.variables == {"x": ("array", "group", "root")}
    assert (answer.principal, answer.diagnostics) == (("good",), ())


def test_those_that_do_not_apply_are_silent():
    assert consult(Good(), Broken(), array="other").variables == {}


def test_one_that_fails_is_a_finding_and_the_others_are_used():
    answer = consult(Broken(), Undetecting(), Good())
    assert answer.principal == ("good",)
    assert [(note.code, note.path) for note in answer.diagnostics] == [("handler.failed", "/a")] * 2
    assert "ZeroDivisionError" in answer.diagnostics[0].message


def test_tiers_compose_and_the_first_to_give_a_name_keeps_it():
    answer = consult(Good(), Service())
    assert answer.variables == {"x": ("array", "group", "root"), "y": 2}
    assert [note.code for note in answer.diagnostics] == ["handler.repeated"]


def test_handlers_registered_by_hand_come_principal_first_and_can_be_taken_back():
    made = [register(Service), register(Good())]
    try:
        found, _ = third_parties()
        assert [handler.name for handler in found if handler in made] == ["good", "service"]
    finally:
        for handler in made:
            unregister(handler)
    assert not set(made) & set(third_parties()[0])


def test_a_class_that_was_registered_can_be_taken_back_by_itself():
    before, _ = third_parties()
    register(Service)
    unregister(Service)
    assert third_parties()[0] == before


@pytest.mark.parametrize("wrong", [object(), type("X", (), {}), type("Y", (Good,), {"tier": "royal"})])
def test_what_is_no_handler_is_refused(wrong):
    with pytest.raises(TypeError):
        register(wrong)


def test_entry_points_are_loaded_and_broken_ones_reported(monkeypatch, tmp_path):
    package = types.ModuleType("periplus_test_convention")
    package.Good, package.nothing = Good, object()
    monkeypatch.setitem(sys.modules, "periplus_test_convention", package)
    info = tmp_path / "periplus_test_convention-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: periplus-test-convention\nVersion: 1.0\n")
    points = (
        "good = periplus_test_convention:Good\nbad = periplus_test_convention:nothing\ngone = no_such_module_here:x\n"
    )
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{points}")
    monkeypatch.syspath_prepend(tmp_path)
    handlers._installed.cache_clear()
    try:
        found, notes = third_parties()
        assert any(type(handler) is Good for handler in found)
        assert sorted(note.message.split()[0] for note in notes) == ["bad", "gone"]
        assert {note.code for note in notes} == {"handler.unloadable"}
    finally:
        handlers._installed.cache_clear()


def test_the_package_offers_its_main_names():
    assert set(periplus.conventions.__all__) <= set(dir(periplus.conventions))
    for name in periplus.conventions.__all__:
        assert getattr(periplus.conventions, name).__name__ == name
