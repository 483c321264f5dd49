/* A program that was not linked with libibverbs, and loads it and others by name. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            const char *why = dlerror();                                          \
            fprintf(stderr, "%d: %s: %s\n", __LINE__, #condition, why ? why : ""); \
            return 1;                                                             \
        }                                                                         \
    } while (0)

struct ibv_device;

int main(void)
{
    const char *names[] = {"libibverbs.so.1", "libibverbs.so", "/usr/lib/x86_64-linux-gnu/libibverbs.so.1"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *verbs = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        CHECK(verbs);
        struct ibv_device **(*list)(int *);
        void (*free_list)(struct ibv_device **);
        const char *(*name)(struct ibv_device *);
        list = (struct ibv_device * *(*)(int *)) dlvsym(verbs, "ibv_get_device_list", "IBVERBS_1.1");
        free_list = (void (*)(struct ibv_device **))dlsym(verbs, "ibv_free_device_list");
        name = (const char *(*)(struct ibv_device *))dlsym(verbs, "ibv_get_device_name");
        CHECK(list && free_list && name);
        int count = 0;
        struct ibv_device **devices = list(&count);
        CHECK(devices && count == 1 && !strcmp(name(devices[0]), "warpline0"));
        free_list(devices);
        CHECK(!dlclose(verbs));
    }
    void *rdmacm = dlopen("librdmacm.so.1", RTLD_LAZY);
    CHECK(rdmacm && dlvsym(rdmacm, "rdma_create_event_channel", "RDMACM_1.0"));

    /* Others, and the program itself, as ever: where the program says, and nowhere. */
    void *beside = dlopen("libbeside.so", RTLD_NOW);
    CHECK(beside);
    int (*function)(void) = (int (*)(void))dlsym(beside, "beside");
    CHECK(function && function() == 7);
    void *program = dlopen(NULL, RTLD_NOW);
    CHECK(program && dlsym(program, "printf"));
    CHECK(!dlopen("libibverbs.so.1.none", RTLD_NOW));
    CHECK(strstr(dlerror(), "libibverbs.so.1.none"));
    puts("ok");
    return 0;
}
