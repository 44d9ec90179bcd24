"""Which test holds which of the sheet's 28 invariants over the real tables, on whichever database the suite runs;
and which holds the 18 of the timeline sheet, for the planner as well as over the tables.

Beside them the simulation checks all that a virtual world can (``engine/simulation/checks/invariants.py``).
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PREPARE = "tests/engine/schedule/test_prepare_properties.py::"
MACHINE = "tests/webadmin/schedule/test_schedule_machine.py::test_the_schedule_agrees_with_a_dictionary"
TWINS = "tests/contracts/test_schedule_in_memory.py::test_tables_and_memory_decide_and_end_the_same"
LETTING_GO = (
    "tests/webadmin/lanes/profiles/test_letting_go.py::" + "test_deleted_data_is_not_visible_and_nothing_else_is_lost"
)
TWO = "tests/webadmin/schedule/test_two_connections.py::"
REGISTER = "tests/webadmin/schedule/operations/test_register.py::"
POLL = "tests/webadmin/schedule/test_poll.py::"
HELD_BY = {
    1: (MACHINE,),
    2: (MACHINE, TWO + "test_a_completion_applied_twice_changes_nothing_more"),
    3: (MACHINE,),
    4: (MACHINE, LETTING_GO),
    5: (
        MACHINE,
        "tests/webadmin/lanes/profiles/test_queries.py::test_the_results_are_found_instead_of_the_sources",
    ),
    6: (
        MACHINE,
        "tests/webadmin/hostile/test_hostile_polls.py::test_a_report_that_is_not_the_senders_to_make_changes_nothing",
    ),
    7: (MACHINE, TWO + "test_one_free_job_goes_to_exactly_one_of_two_pollers"),
    8: (MACHINE, POLL + "test_a_renewal_never_shortens_a_lease"),
    9: (MACHINE, PREPARE + "test_jobs_of_a_tenant_are_assigned_in_priority_order", TWINS),
    10: (MACHINE,),
    11: (MACHINE, REGISTER + "test_requeueing_never_overfills_the_queue"),
    12: (
        MACHINE,
        PREPARE + "test_a_schedule_full_of_faulty_jobs_assigns_new_jobs",
        POLL + "test_parked_jobs_do_not_block_the_queue",
    ),
    13: (MACHINE, REGISTER + "test_every_parked_job_is_in_the_register_and_can_be_requeued"),
    14: (MACHINE,),
    15: (
        MACHINE,
        PREPARE + "test_blocks_that_are_old_enough_are_planned_when_there_is_capacity",
        POLL + "test_a_lone_old_segment_is_merged_without_another_arrival",
    ),
    16: (
        MACHINE,
        "tests/webadmin/schedule/test_replay_orders.py::test_every_action_replays_to_the_state_of_the_tables",
    ),
    17: (MACHINE, TWO + "test_preparing_changes_nothing"),
    18: (MACHINE,),
    19: (MACHINE, LETTING_GO),
    20: (
        "tests/webadmin/lanes/profiles/test_delete_objects.py::test_objects_go_after_the_delay_and_not_before",
        LETTING_GO,
    ),
    21: (LETTING_GO,),
    22: (MACHINE, PREPARE + "test_the_order_of_rows_has_no_effect", TWINS),
    23: (
        MACHINE,
        "tests/webadmin/schedule/test_schedule_rows.py::test_after_a_restart_what_was_stored_is_assignable",
        TWINS,
    ),
    24: (POLL + "test_capacity_bounds_what_is_planned", MACHINE),
    25: (POLL + "test_level_three_is_final", MACHINE),
    26: (MACHINE, "tests/webadmin/schedule/test_schedule_rows.py::test_one_poll_adds_returns_completes_and_evicts"),
    27: (
        MACHINE,
        LETTING_GO,
        "tests/webadmin/hostile/test_every_endpoint.py::"
        "test_a_credential_of_one_tenant_learns_and_changes_nothing_of_another",
    ),
    28: (MACHINE, POLL + "test_a_clock_that_jumps_ahead_ends_no_lease_at_once"),
}

TIMELINE = "tests/engine/lanes/tables/plan/"
PROPERTIES = TIMELINE + "test_properties.py::"
ADMISSION = TIMELINE + "test_admission.py::"
CONTROLLER = TIMELINE + "test_timeline_machine.py::TestController"
TABLES = "tests/webadmin/lanes/tables/"
TASKS = PROPERTIES + "test_tasks_satisfy_their_invariants"
REST = PROPERTIES + "test_the_second_plan_is_empty_and_a_crash_loses_nothing"
PRIORITIES = PROPERTIES + "test_priorities_are_exact_and_grow_with_the_gain"
LIMITS = ADMISSION + "test_limits_hold_and_the_most_urgent_of_the_rest_wait"
PUT_OFF = TABLES + "test_controllers.py::test_what_does_not_fit_the_queue_is_put_off_and_never_looked_at_again_for_it"
MONTHS = TABLES + "test_lane.py::test_months_of_small_files_come_to_rest_with_every_row"
TIMELINE_HELD_BY = {
    1: (PROPERTIES + "test_order_and_form_of_the_input_have_no_effect",),
    2: (PROPERTIES + "test_every_chunk_equals_a_count_by_hour",),
    3: (TASKS, CONTROLLER),
    4: (TASKS,),
    5: (TASKS,),
    6: (TASKS,),
    7: (TASKS, CONTROLLER),
    8: (
        REST,
        CONTROLLER,
        "tests/engine/lanes/tables/test_second_plan.py::test_the_second_plan_of_merged_files_is_empty",
    ),
    9: (REST, CONTROLLER, TABLES + "test_controllers.py::test_after_a_restart_only_the_rest_is_done"),
    10: (TASKS, PRIORITIES, PROPERTIES + "test_priorities_of_a_plan_are_the_exact_ones"),
    11: (PRIORITIES,),
    12: (LIMITS, CONTROLLER, TABLES + "test_lane.py::test_a_large_task_reserves_slots_after_it_was_skipped"),
    13: (LIMITS, ADMISSION + "test_the_most_urgent_tasks_wait_in_any_order_of_arrival", CONTROLLER),
    14: (CONTROLLER, PUT_OFF),
    15: (CONTROLLER, MONTHS),
    16: (CONTROLLER, TABLES + "test_lane.py::test_late_data_stays_beside_what_was_merged_meanwhile"),
    17: (CONTROLLER, TABLES + "test_lane.py::test_a_merge_result_after_a_lost_lease_changes_nothing"),
    18: (CONTROLLER, TABLES + "test_lane.py::test_every_chunk_with_data_has_a_state_and_a_reason"),
}


def test_every_invariant_is_held_over_the_tables_by_a_test_that_exists() -> None:
    assert set(HELD_BY) == set(range(1, 29))
    assert set(TIMELINE_HELD_BY) == set(range(1, 19))
    for test in {test for held in (HELD_BY, TIMELINE_HELD_BY) for tests in held.values() for test in tests}:
        path, name = test.split("::")
        assert re.search(rf"^(def {name}\(|{name} = )", (ROOT / path).read_text(), re.MULTILINE), test
