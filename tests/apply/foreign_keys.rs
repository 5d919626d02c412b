//! D04: the target's own triggers and cascades do not act a second time.

use crate::world::{Plan, World};

const SCHEMA: &str = "
    CREATE TABLE parent (id int PRIMARY KEY, v text);
    CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE);
    CREATE TABLE loose (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE SET NULL);
    CREATE TABLE audit (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO public.audit (what) VALUES (TG_NAME || ' ' || TG_OP); RETURN NULL; END $$;
    CREATE TRIGGER plain AFTER INSERT OR UPDATE OR DELETE ON parent FOR EACH ROW EXECUTE FUNCTION note();
";

#[tokio::test]
async fn cascades_and_triggers_act_once() {
    let mut plan = Plan::same(18, SCHEMA, &["public.parent", "public.child", "public.loose", "public.audit"]);
    plan.target_schema.push_str(
        "CREATE TABLE replica_audit (what text); \
         CREATE FUNCTION replica_note() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN INSERT INTO public.replica_audit VALUES (TG_OP); RETURN NULL; END $$; \
         CREATE TRIGGER marked AFTER INSERT OR UPDATE OR DELETE ON parent FOR EACH ROW EXECUTE FUNCTION replica_note(); \
         ALTER TABLE parent ENABLE REPLICA TRIGGER marked",
    );
    let mut world = World::new(plan).await;
    let running = world.start_apply();
    world
        .source_sql(
            "INSERT INTO parent SELECT g, 'p' FROM generate_series(1, 4) g; \
             INSERT INTO child SELECT g, 1 + g % 4 FROM generate_series(1, 40) g; \
             INSERT INTO loose SELECT g, 1 + g % 4 FROM generate_series(1, 8) g",
        )
        .await;
    world
        .source_sql("DELETE FROM parent WHERE id = 1; DELETE FROM loose WHERE parent = 2; UPDATE parent SET id = 20 WHERE id = 2")
        .await;
    // A foreign key that is checked at the commit lets the child come first.
    world
        .source_sql(
            "ALTER TABLE child ALTER CONSTRAINT child_parent_fkey DEFERRABLE INITIALLY DEFERRED; \
             BEGIN; INSERT INTO child VALUES (100, 50); INSERT INTO parent VALUES (50, 'late'); COMMIT",
        )
        .await;
    world.settle(&running).await;
    world.assert_equal().await;
    let marked = world.target_text("SELECT string_agg(what, ',' ORDER BY what) FROM replica_audit").await;
    assert_eq!(
        marked.as_deref(),
        Some("DELETE,INSERT,INSERT,INSERT,INSERT,INSERT,UPDATE"),
        "ENABLE REPLICA fires, once"
    );
    running.stop().await;
}
