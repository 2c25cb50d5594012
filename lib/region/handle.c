/* Handles of spaces and collections: what a call that is given one does first and last. */
#include "base/registry.h"
#include "region/region.h"

gvm_status gvmi_space_hold(const gvm_space *handle, gvm_space **out)
{
    void *object;
    gvm_status status = gvmi_registry_hold(GVMI_KIND_SPACE, gvmi_key(handle), &object);

    *out = object;
    if (status == GVM_OK)
        gvmi_lock(&(*out)->lock);
    return status;
}

void gvmi_space_drop(gvm_space *space)
{
    gvmi_unlock(&space->lock);
    gvmi_registry_drop(GVMI_KIND_SPACE, gvmi_key(space));
}

gvm_status gvmi_collection_hold(const gvm_collection *handle, gvm_collection **out)
{
    void *object;
    gvm_status status = gvmi_registry_hold(GVMI_KIND_COLLECTION, gvmi_key(handle), &object);

    *out = object;
    if (status == GVM_OK)
        gvmi_lock(&(*out)->space->lock);
    return status;
}

void gvmi_collection_drop(gvm_collection *c)
{
    gvmi_unlock(&c->space->lock);
    gvmi_registry_drop(GVMI_KIND_COLLECTION, gvmi_key(c));
}
